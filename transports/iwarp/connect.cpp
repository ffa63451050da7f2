// SPDX-License-Identifier: Apache-2.0
// The initiator's side of MPA start-up (RFC 5044 7.1, RFC 6581): connect, request, reply.
#include "context.hpp"

#include "startup.hpp"

#include <verbena/core/net/net.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <sys/socket.h>

namespace verbena::iwarp {
namespace {

// One step of a connect: waits until a socket can be written or read, or until time is up.
class readiness final : public io_watch, private timer {
public:
    readiness(reactor& r, int fd, time_point deadline) : io_watch(r, fd) { r.timers().arm(*this, deadline); }
    task<bool> writable()
    {
        changed_.reset();
        want_write();
        const bool woken = co_await changed_.wait();
        co_return woken && !expired_;
    }
    task<bool> readable()
    {
        changed_.reset();
        want_read(true);
        const bool woken = co_await changed_.wait();
        want_read(false);
        co_return woken && !expired_;
    }
    bool expired() const noexcept { return expired_; }

private:
    bool on_readable() noexcept override
    {
        char c;
        if (::recv(fd(), &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN)
            return false;
        want_read(false);
        changed_.set();
        return true;
    }
    void on_writable() noexcept override { changed_.set(); }
    void on_timer() noexcept override
    {
        expired_ = true;
        changed_.set();
    }
    event changed_;
    bool expired_ = false;
};

} // namespace

task<result<std::unique_ptr<verbs::queue_pair>>> context_impl::connect(std::string_view address,
                                                                       verbs::protection_domain& d,
                                                                       const verbs::connect_options& o,
                                                                       std::vector<std::byte>& reply)
{
    const auto fail = [this](end_cause c, const error& e) {
        count(c);
        return e;
    };
    if (!owns(d))
        co_return error(std::errc::invalid_argument, "a protection domain of another device");
    if (o.private_data.size() > query().max_private_data)
        co_return error(std::errc::message_size, "private data longer than the provider carries",
                        o.private_data.size());
    const auto to = net::endpoint::parse(address);
    if (!to)
        co_return to.error();
    auto fd = net::start_connect(*to);
    if (!fd)
        co_return fd.error();
    const int raw = fd->get();
    auto watch = std::make_unique<readiness>(shard_, raw, shard_.clock().now() + o.timeout);
    if (!co_await watch->writable())
        co_return error(watch->expired() ? std::errc::timed_out : std::errc::operation_canceled, "connect");
    const auto connected = net::connect_outcome(raw);
    if (!connected)
        co_return connected.error();
    prepare_socket(raw, options());

    const auto limit = std::uint32_t(query().max_outstanding_reads);
    std::vector<std::byte> bytes(wire::mpa_header_size + wire::enhanced_size + o.private_data.size());
    wire::mpa_frame request;
    request.enhanced = true;
    request.crc = options().crc == crc_mode::on;
    request.private_data_length = static_cast<std::uint16_t>(bytes.size() - wire::mpa_header_size);
    wire::mpa_depths wanted;
    wanted.ird = static_cast<std::uint16_t>(std::min(o.responder_resources, limit));
    wanted.ord = static_cast<std::uint16_t>(std::min(o.initiator_depth, limit));
    wire::encode_mpa(request, bytes.data());
    wire::encode_depths(wanted, bytes.data() + wire::mpa_header_size);
    std::ranges::copy(o.private_data, bytes.begin() + wire::mpa_header_size + wire::enhanced_size);
    if (::send(raw, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) !=
        static_cast<ssize_t>(bytes.size()))
        co_return error::from_errno(errno, "send the MPA request");

    std::array<std::byte, wire::mpa_header_size + wire::max_mpa_private_data> in;
    std::size_t have = 0;
    std::size_t need = wire::mpa_header_size;
    wire::mpa_frame answer;
    while (have < need) {
        if (!co_await watch->readable())
            co_return fail(end_cause::startup_timeout,
                           error(watch->expired() ? std::errc::timed_out : std::errc::operation_canceled,
                                 "wait for the MPA reply"));
        const ssize_t n = ::recv(raw, in.data() + have, need - have, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n <= 0)
            co_return fail(end_cause::peer_reset, error(std::errc::connection_refused,
                                                        "the peer closed the connection in MPA start-up"));
        have += static_cast<std::size_t>(n);
        if (have == wire::mpa_header_size) {
            const auto frame = wire::parse_mpa(std::span(in).first<wire::mpa_header_size>(), true);
            if (!frame)
                co_return fail(end_cause::bad_startup, frame.error());
            answer = *frame;
            need += answer.private_data_length;
        }
    }
    watch.reset();
    const auto data =
        std::span<const std::byte>(in).subspan(wire::mpa_header_size, answer.private_data_length);
    if (answer.reject) {
        const auto said = data.subspan(answer.enhanced ? wire::enhanced_size : 0);
        reply.assign(said.begin(), said.end());
        co_return fail(end_cause::rejected,
                       error(std::errc::connection_refused, "the peer rejected the connection"));
    }
    if (answer.revision != 2 || !answer.enhanced)
        co_return fail(end_cause::revision_refused,
                       error(std::errc::protocol_not_supported, "the peer's MPA revision", answer.revision));
    if (answer.markers)
        co_return fail(end_cause::markers_refused,
                       error(std::errc::protocol_not_supported, "the peer wants markers"));
    const auto depths = wire::parse_depths(data.first<wire::enhanced_size>());
    agreement a;
    a.initiator = true;
    a.crc = answer.crc || request.crc;
    a.ord = std::min<std::uint32_t>(wanted.ord, depths.ird == wire::no_negotiation ? wanted.ord : depths.ird);
    // A responder whose ORD is above our IRD breaks RFC 6581 9.1; our bound on its Reads stands.
    a.ird = std::min<std::uint32_t>(wanted.ird, depths.ord == wire::no_negotiation ? wanted.ird : depths.ord);
    reply.assign(data.begin() + wire::enhanced_size, data.end());
    auto c = std::make_unique<connection>(*this, std::move(*fd), static_cast<iwarp::domain&>(d), o.queue_pair,
                                          to->to_string(), to->address());
    c->open(a);
    std::unique_ptr<verbs::queue_pair> qp = std::move(c);
    co_return qp;
}

} // namespace verbena::iwarp
