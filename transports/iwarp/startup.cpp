// SPDX-License-Identifier: Apache-2.0
#include "startup.hpp"

#include <verbena/core/net/refusals.hpp>
#include <verbena/core/task/exception.hpp>

#include <algorithm>
#include <cerrno>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace verbena::iwarp {
namespace {

constexpr auto accept_pause = std::chrono::milliseconds(100); // when descriptors or memory ran out

// Start-up frames are far smaller than an empty socket buffer: a short send means a dead peer.
result<void> send_all(int fd, std::span<const std::byte> bytes)
{
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n == static_cast<ssize_t>(bytes.size()))
        return {};
    return error::from_errno(n < 0 ? errno : EIO, "send the MPA frame");
}

} // namespace

void prepare_socket(int fd, const iwarp::options& o) noexcept
{
    (void)net::set_no_delay(fd);
    net::keep_alive k;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(o.peer_timeout);
    k.idle = std::max(seconds / 2, std::chrono::seconds(1));
    k.probes = 3;
    k.interval = std::max(seconds / 6, std::chrono::seconds(1));
    (void)net::set_keep_alive(fd, k);
}

// --- starting_peer ---

starting_peer::starting_peer(mpa_listener& owner, net::unique_fd fd, peer_charge charged)
    : owner_(owner),
      charged_(std::move(charged)),
      fd_(std::move(fd)),
      watch_(owner.context().shard(), fd_.get(), *this),
      limit_(*this)
{
    reactor& r = owner.context().shard();
    r.timers().arm(limit_, r.clock().now() + owner.context().options().startup_timeout);
    watch_.want_read(true);
}

void starting_peer::limit::on_timer() noexcept { peer_.owner_.drop(peer_, end_cause::startup_timeout); }

bool starting_peer::watch::on_readable() noexcept
{
    starting_peer& p = peer_;
    for (;;) {
        // Never past the frame: what follows belongs to the connection.
        const ssize_t n = ::recv(p.fd_.get(), p.bytes_.data() + p.have_, p.need_ - p.have_, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return false;
        if (n <= 0) {
            p.owner_.drop(p, end_cause::peer_reset);
            return true;
        }
        p.have_ += static_cast<std::size_t>(n);
        if (p.have_ < p.need_)
            continue;
        if (p.need_ == wire::mpa_header_size) {
            const auto frame = wire::parse_mpa(std::span(p.bytes_).first<wire::mpa_header_size>(), false);
            if (!frame || frame->reject) {
                p.owner_.drop(p, end_cause::bad_startup);
                return true;
            }
            p.frame_ = *frame;
            p.need_ += frame->private_data_length;
            if (frame->revision != 2 || !frame->enhanced) {
                p.owner_.drop(p, end_cause::revision_refused);
                return true;
            }
            if (frame->markers) {
                p.owner_.drop(p, end_cause::markers_refused);
                return true;
            }
            if (p.have_ < p.need_)
                continue;
        }
        p.owner_.ready(p);
        return true;
    }
}

// --- mpa_request ---

arrived_peer::arrived_peer(net::unique_fd s, const wire::mpa_frame& f, std::span<const std::byte> body,
                           peer_charge charged)
    : handshake(std::move(charged)),
      socket(std::move(s)),
      frame(f),
      depths(wire::parse_depths(body.first<wire::enhanced_size>()))
{
    const auto own = body.first(f.private_data_length).subspan(wire::enhanced_size);
    data.assign(own.begin(), own.end());
}

mpa_request::mpa_request(context_impl& c, std::unique_ptr<arrived_peer> peer)
    : context_(c), peer_(std::move(peer))
{
    if (const auto who = net::endpoint::remote(peer_->socket.get())) {
        peer_name_ = who->to_string();
        peer_address_ = who->address();
    }
}

mpa_request::~mpa_request()
{
    if (connection_ != nullptr)
        connection_->watch(nullptr);
}

task<result<std::unique_ptr<verbs::queue_pair>>>
mpa_request::make_queue_pair(verbs::protection_domain& d, const verbs::queue_pair_options& o)
{
    if (!context_.owns(d))
        co_return error(std::errc::invalid_argument, "a protection domain of another device");
    if (!peer_->socket)
        co_return error(std::errc::invalid_argument, "a connect request makes one queue pair");
    auto c = std::make_unique<connection>(context_, std::move(peer_->socket), static_cast<iwarp::domain&>(d),
                                          o, peer_name_, peer_address_);
    connection_ = c.get();
    connection_->watch(&connection_);
    co_return std::unique_ptr<verbs::queue_pair>(std::move(c));
}

result<void> mpa_request::send_reply(int fd, bool reject, const wire::mpa_depths& depths,
                                     std::span<const std::byte> data)
{
    if (data.size() > context_.query().max_private_data)
        return error(std::errc::message_size, "private data longer than the provider carries", data.size());
    std::array<std::byte, wire::mpa_header_size + wire::max_mpa_private_data> bytes;
    wire::mpa_frame f;
    f.reply = true;
    f.reject = reject;
    f.enhanced = true;
    f.crc = peer_->frame.crc || context_.options().crc == crc_mode::on;
    // siw needs the depths in a reject too: it reads them before it looks at the flag.
    f.private_data_length = static_cast<std::uint16_t>(wire::enhanced_size + data.size());
    wire::encode_mpa(f, bytes.data());
    wire::encode_depths(depths, bytes.data() + wire::mpa_header_size);
    std::ranges::copy(data, bytes.begin() + wire::mpa_header_size + wire::enhanced_size);
    return send_all(fd, std::span(bytes).first(wire::mpa_header_size + f.private_data_length));
}

task<result<void>> mpa_request::accept(const verbs::connect_options& o)
{
    if (peer_->socket)
        co_return error(std::errc::invalid_argument, "make_queue_pair() comes before accept()");
    if (connection_ == nullptr)
        co_return error(std::errc::connection_aborted, "the queue pair has ended, or was accepted");
    connection* c = std::exchange(connection_, nullptr);
    c->watch(nullptr);
    const auto limit = static_cast<std::uint16_t>(context_.query().max_outstanding_reads);
    wire::mpa_depths mine;
    // RFC 6581 9.1: our ORD at most the peer's IRD, our IRD at least the peer's ORD where we can.
    const std::uint16_t peer_ird = peer_->depths.ird == wire::no_negotiation ? limit : peer_->depths.ird;
    const std::uint16_t peer_ord = peer_->depths.ord == wire::no_negotiation ? limit : peer_->depths.ord;
    mine.ord = static_cast<std::uint16_t>(std::min<std::uint32_t>({o.initiator_depth, peer_ird, limit}));
    mine.ird = static_cast<std::uint16_t>(std::min<std::uint32_t>({o.responder_resources, peer_ord, limit}));
    if (peer_->depths.peer_to_peer) {
        // RFC 6581 9.2: name one ready-to-receive message that the initiator offered. A zero-length Send
        // would take one of the service's receives, so it is not accepted.
        mine.peer_to_peer = true;
        mine.rtr_write = peer_->depths.rtr_write;
        mine.rtr_read = !peer_->depths.rtr_write && peer_->depths.rtr_read;
        if (!mine.rtr_write && !mine.rtr_read) {
            const error why(std::errc::not_supported, "no ready-to-receive message in common (RFC 6581 9.2)");
            c->finish(end_cause::peer_to_peer_refused, why);
            co_return why;
        }
        if (mine.rtr_read && mine.ird == 0)
            mine.ird = 1;
    }
    agreement a;
    a.crc = peer_->frame.crc || context_.options().crc == crc_mode::on;
    a.ord = mine.ord;
    a.ird = mine.ird;
    auto sent = send_reply(c->socket(), false, mine, o.private_data);
    if (!sent) {
        c->kill(sent.error());
        co_return sent.error();
    }
    c->open(a);
    co_return result<void>();
}

task<result<void>> mpa_request::reject(std::span<const std::byte> data)
{
    if (!peer_->socket)
        co_return error(std::errc::invalid_argument, "reject() takes a request without a queue pair");
    context_.count(end_cause::rejected);
    auto sent = send_reply(peer_->socket.get(), true, wire::mpa_depths(), data);
    ::shutdown(peer_->socket.get(), SHUT_WR);
    peer_->socket.reset();
    co_return sent;
}

// --- mpa_listener ---

mpa_listener::mpa_listener(context_impl& c, net::unique_fd fd, std::string url)
    : context_(c), fd_(std::move(fd)), url_(std::move(url))
{
    if (fd_) {
        watch_ = std::make_unique<watch>(c.shard(), fd_.get(), *this);
        watch_->want_read(true);
    }
}

mpa_listener::~mpa_listener() { close(); }

void mpa_listener::close() noexcept
{
    if (std::exchange(closed_, true))
        return;
    watch_.reset();
    fd_.reset();
    while (starting_peer* p = starting_.front()) {
        p->unlink();
        delete p;
    }
    starting_count_ = 0;
    waiting_.clear();
    changed_.set();
}

bool mpa_listener::watch::on_readable() noexcept
{
    bool any = false;
    for (int i = 0; i < 64; ++i) {
        auto a = net::accept(fd());
        if (!a) {
            const int code = a.error().errno_value();
            if (code == EAGAIN || code == EWOULDBLOCK)
                return any;
            // The connection stays in the queue, so the listener would be readable for ever: wait until
            // somebody has closed something.
            shard().timers().arm(resume_, shard().now() + accept_pause);
            want_read(false);
            return true;
        }
        any = true;
        listener_.take(std::move(a->fd));
    }
    return any;
}

void mpa_listener::take(net::unique_fd fd) noexcept
{
    if (closed_)
        return;
    context_impl::add(context_.stats().accepted, 1);
    try {
        begin(std::move(fd));
    } catch (...) {
        lose(std::current_exception());
    }
}

void mpa_listener::begin(net::unique_fd fd)
{
    peer_charge charged;
    if (const iwarp::options& o = context_.options(); o.peers != nullptr) {
        const auto from = net::endpoint::remote(fd.get());
        if (!from) {
            context_.count(end_cause::peer_reset);
            return;
        }
        if (o.peers->evicted().has(from->address(), context_.shard().clock().now())) {
            context_.count(end_cause::startup_crowded);
            tell_refusal(refused::connection_evicted, {.peer = from->address(), .object = "iwarp"});
            return;
        }
        charged = o.peers->charge(from->address(), peer_use::handshakes, 1, o.max_peer_starting);
        if (!charged) {
            context_.count(end_cause::startup_crowded);
            tell_refusal(refused::connection_handshakes,
                         {.peer = from->address(), .object = "iwarp", .most = o.max_peer_starting});
            return;
        }
    }
    prepare_socket(fd.get(), context_.options());
    if (starting_count_ >= context_.options().max_starting) {
        const auto oldest = net::endpoint::remote(starting_.front()->fd_.get());
        tell_refusal(refused::connection_handshakes,
                     {.peer = oldest ? oldest->address() : std::string("unknown"),
                      .object = "iwarp",
                      .limit = "connections of all hosts that have not said what they want",
                      .cure = "see which hosts connect and say nothing",
                      .most = context_.options().max_starting});
        drop(*starting_.front(), end_cause::startup_crowded);
    }
    starting_.push_back(*new starting_peer(*this, std::move(fd), std::move(charged)));
    ++starting_count_;
}

void mpa_listener::lose(const std::exception_ptr& e) noexcept
{
    context_.count(end_cause::setup_failed);
    log_limited(lost_log_, log_level::error, "iwarp", "an exception kept a peer from being taken",
                {{"exception", what_of(e)}});
}

void mpa_listener::drop(starting_peer& p, end_cause why) noexcept
{
    context_.count(why);
    --starting_count_;
    p.unlink();
    delete &p;
}

void mpa_listener::ready(starting_peer& p) noexcept
{
    p.watch_.stop();
    std::unique_ptr<arrived_peer> peer;
    try {
        peer = std::make_unique<arrived_peer>(std::move(p.fd_), p.frame_,
                                              std::span(p.bytes_).subspan(wire::mpa_header_size),
                                              std::move(p.charged_));
    } catch (...) {
        lose(std::current_exception());
    }
    --starting_count_;
    p.unlink();
    delete &p;
    if (peer && context_.options().divert) {
        std::unique_ptr<verbs::arrival> taken = std::move(peer);
        try {
            context_.options().divert(taken, *this);
            peer.reset(static_cast<arrived_peer*>(taken.release()));
        } catch (...) {
            lose(std::current_exception());
        }
    }
    if (peer)
        take(std::move(peer));
}

// It takes connections too slowly.
void mpa_listener::tell_crowded(const arrived_peer& peer) const noexcept
{
    try {
        const auto from = net::endpoint::remote(peer.socket.get());
        tell_refusal(refused::connection_waiting, {.peer = from ? from->address() : std::string("unknown"),
                                                   .object = "iwarp",
                                                   .most = context_.options().max_waiting});
    } catch (const std::bad_alloc&) {
        count_refusal(refused::connection_waiting);
    }
}

void mpa_listener::take(std::unique_ptr<arrived_peer> peer) noexcept
{
    if (closed_)
        return;
    if (waiting_.size() >= context_.options().max_waiting) {
        context_.count(end_cause::waiting_crowded);
        tell_crowded(*peer);
        return;
    }
    try {
        waiting_.push_back(std::make_unique<mpa_request>(context_, std::move(peer)));
        changed_.set();
    } catch (...) {
        lose(std::current_exception());
    }
}

task<result<std::unique_ptr<verbs::connect_request>>> mpa_listener::next()
{
    for (;;) {
        if (closed_)
            co_return error(std::errc::operation_canceled, "the listener was closed");
        if (!waiting_.empty()) {
            std::unique_ptr<verbs::connect_request> r = std::move(waiting_.front());
            waiting_.pop_front();
            co_return r;
        }
        changed_.reset();
        if (!co_await changed_.wait())
            co_return error(std::errc::operation_canceled, "the wait for a connection was stopped");
    }
}

} // namespace verbena::iwarp
