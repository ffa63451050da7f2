// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rpcstream/stream_client.hpp>

#include "../rpc/copy_message.hpp"
#include "../rpc/reverse_call.hpp"
#include "socket_connect.hpp"

#include <verbena/core/reactor/io_watch.hpp>
#include <verbena/protocols/rpc/reconnecting_client.hpp>
#include <verbena/protocols/rpcstream/record_marking.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <sys/uio.h>
#include <utility>
#include <vector>

namespace verbena::rpc {
namespace {

/// Where the beginnings of records arrive. What of a long record arrived here is copied once.
constexpr std::size_t input_size = 64 * 1024;
constexpr std::size_t min_input_room = 4096;
/// A message is put together from: mark, head, pieces, pad, tail.
constexpr std::size_t max_vectors_per_call = payload::max_pieces + 4;
constexpr std::size_t max_vectors = 8 * max_vectors_per_call;
constexpr int reads_per_poll = 8;
constexpr auto memory_retry = std::chrono::milliseconds(5);
constexpr std::array<std::byte, xdr::unit> zero_pad{};

/// The pieces of one message in order, without copying. `skip` bytes at the front are left out.
class gather {
public:
    void add(std::span<const std::byte> mark, const request& call, std::size_t skip)
    {
        skip_ = skip;
        put(mark);
        call.message().in_order([this](std::span<const std::byte> bytes) { put(bytes); },
                                [&](std::size_t item) {
                                    const payload& bytes = call.arguments()[item].bytes;
                                    for (auto piece : bytes.pieces())
                                        put(piece);
                                    put(std::span(zero_pad).first(xdr::pad_of(bytes.size())));
                                });
    }
    void add(std::span<const std::byte> whole, std::size_t skip)
    {
        skip_ = skip;
        put(whole);
    }
    bool full() const noexcept { return count_ + max_vectors_per_call > max_vectors; }
    iovec* data() noexcept { return vectors_.data(); }
    std::size_t count() const noexcept { return count_; }

private:
    void put(std::span<const std::byte> bytes)
    {
        const std::size_t cut = std::min(skip_, bytes.size());
        skip_ -= cut;
        bytes = bytes.subspan(cut);
        if (!bytes.empty())
            vectors_[count_++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    }

    std::array<iovec, max_vectors> vectors_;
    std::size_t count_ = 0;
    std::size_t skip_ = 0;
};

class stream_client final : public reconnecting_client {
public:
    stream_client(reactor& r, buffer_pool& buffers, std::string_view address,
                  const stream_client_options& options)
        : reconnecting_client(r, options.client),
          buffers_(buffers),
          address_(address),
          reserved_port_(options.reserved_port),
          callbacks_(options.callbacks),
          callback_credits_(options.callback_credits),
          max_reply_(options.max_reply)
    {
    }
    ~stream_client() override { drop(); }

    task<lease> acquire(std::size_t size) override { co_return co_await buffers_.acquire(size); }
    std::string_view name() const noexcept override { return "tcp"; }
    bool serves_calls() const noexcept override { return callbacks_ != nullptr; }

private:
    class connection;
    struct callback {
        lease owner;
        std::span<const std::byte> message;
    };

    void go_to(std::string address) override { address_ = std::move(address); }
    task<result<void>> open() override;
    void transmit(outstanding& o) noexcept override;
    void retract(outstanding& o) noexcept override;
    void drop() noexcept override;
    task<void> serve(callback c);

    buffer_pool& buffers_;
    std::string address_; // read for each connection: an interface that it names comes and goes
    bool reserved_port_;
    dispatcher* callbacks_;
    std::uint32_t callback_credits_;
    std::size_t max_reply_;
    net::endpoint peer_; // of the connection
    std::uint64_t epoch_ =
        0; // of the connection: an answer to a call that came over an earlier one is dropped
    std::unique_ptr<connection> connection_;
};

class stream_client::connection final : public io_watch {
public:
    connection(stream_client& client, net::unique_fd fd)
        : io_watch(client.shard(), fd.get()), client_(client), fd_(std::move(fd))
    {
        want_read(true);
    }
    ~connection() { stop(); }

    void enqueue(outstanding& o) noexcept
    {
        encode_fragment_header(o.record_mark,
                               {static_cast<std::uint32_t>(o.call.message().position()), true});
        queue_.push_back(o);
        if (!blocked_)
            shard().at_turn_end(flush_);
    }
    void forget(outstanding& o) noexcept
    {
        // A record that has begun must be sent to its end, or the stream is lost: keep what is left.
        if (call_begun_ && queue_.front() == &o) {
            orphan_.emplace(std::move(o.call));
            orphan_mark_ = o.record_mark;
            call_begun_ = false;
        }
        o.unlink();
    }
    /// A reply to a call of the server: `length` bytes with their record mark.
    void answer(lease bytes, std::size_t length)
    {
        replies_.push_back({std::move(bytes), length});
        if (!blocked_)
            shard().at_turn_end(flush_);
    }
    /// One of the server's calls is over.
    void served() noexcept { --in_service_; }
    bool fail(const error& cause) noexcept
    {
        stop();
        client_.connection_lost(cause);
        return false;
    }

private:
    class flush_later final : public deferred {
    public:
        explicit flush_later(connection& c) noexcept : connection_(c) {}
        void run() noexcept override { connection_.flush(); }

    private:
        connection& connection_;
    };
    class retry_later final : public timer {
    public:
        explicit retry_later(connection& c) noexcept : connection_(c) {}
        void on_timer() noexcept override { connection_.want_read(true); }
        connection& connection_;
    };
    // The server's calls begin after the polls.
    class serve_later final : public deferred {
    public:
        explicit serve_later(connection& c) noexcept : connection_(c) {}
        void run() noexcept override
        {
            try {
                for (callback& each : std::exchange(connection_.arrived_, {}))
                    connection_.client_.spawn(&stream_client::serve, &connection_.client_, std::move(each));
            } catch (...) {
                connection_.fail(
                    error_of(std::current_exception(), "a call of the server could not be served"));
            }
        }

    private:
        connection& connection_;
    };

    bool on_readable() noexcept override;
    void on_writable() noexcept override
    {
        blocked_ = false;
        flush();
    }
    void flush() noexcept;
    void sent(std::size_t n) noexcept;
    bool have_room() noexcept;
    bool parse() noexcept;
    bool begin_fragment(fragment_header header) noexcept;
    bool deliver(lease owner, std::span<const std::byte> record) noexcept;
    bool take_callback(lease owner, std::span<const std::byte> record);
    static std::size_t size_of(const request& call) noexcept
    {
        return fragment_header_size + call.message().position();
    }

    stream_client& client_;
    net::unique_fd fd_;

    struct queued_reply {
        lease bytes;
        std::size_t length;
    };

    // Output, in this order: the orphan or else a call that has begun, replies, and the calls not sent yet. `sent_` bytes of the first of all
    // have gone out.
    intrusive_list<outstanding> queue_;
    std::optional<request> orphan_;
    std::array<std::byte, 4> orphan_mark_{};
    std::vector<queued_reply> replies_;
    std::size_t sent_ = 0;
    bool call_begun_ = false; // the first call of queue_
    bool blocked_ = false;
    flush_later flush_{*this};

    // Input: bytes [begin_, end_) of input_ wait to be parsed. A record that doesn't lie there as a whole
    // grows in record_.
    lease input_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
    lease record_;
    std::size_t record_size_ = 0;
    std::size_t fragment_left_ = 0;
    bool last_fragment_ = false;
    bool in_record_ = false;
    retry_later retry_{*this};

    std::vector<callback> arrived_;
    std::uint32_t in_service_ = 0;
    serve_later serve_{*this};
};

void stream_client::connection::flush() noexcept
{
    while (orphan_ || !replies_.empty() || !queue_.empty()) {
        gather message;
        std::size_t skip = sent_;
        outstanding* next = queue_.front();
        if (orphan_)
            message.add(orphan_mark_, *orphan_, std::exchange(skip, 0));
        if (call_begun_) {
            message.add(next->record_mark, next->call, std::exchange(skip, 0));
            next = queue_.next(*next);
        }
        for (std::size_t i = 0; i < replies_.size() && !message.full(); ++i)
            message.add(replies_[i].bytes.bytes().first(replies_[i].length), std::exchange(skip, 0));
        for (; next != nullptr && !message.full(); next = queue_.next(*next))
            message.add(next->record_mark, next->call, std::exchange(skip, 0));
        msghdr header{};
        header.msg_iov = message.data();
        header.msg_iovlen = message.count();
        const ssize_t n = ::sendmsg(fd(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            fail(error::from_errno(errno, "send to the server"));
            return;
        }
        if (n < 0) {
            blocked_ = true;
            want_write();
            return;
        }
        sent(static_cast<std::size_t>(n));
    }
}

void stream_client::connection::sent(std::size_t n) noexcept
{
    sent_ += n;
    const auto is_out = [this](std::size_t size) {
        if (sent_ < size)
            return false;
        sent_ -= size;
        return true;
    };
    if (orphan_) {
        if (!is_out(size_of(*orphan_)))
            return;
        orphan_.reset();
    }
    if (call_begun_) {
        outstanding* const o = queue_.front();
        if (!is_out(size_of(o->call)))
            return;
        call_begun_ = false;
        o->unlink();
    }
    std::size_t answered = 0;
    while (answered < replies_.size() && is_out(replies_[answered].length))
        ++answered;
    replies_.erase(replies_.begin(), replies_.begin() + static_cast<std::ptrdiff_t>(answered));
    if (!replies_.empty())
        return;
    while (outstanding* const o = queue_.front()) {
        if (!is_out(size_of(o->call)))
            break;
        o->unlink();
    }
    call_begun_ = sent_ != 0;
}

// Makes sure that a read has somewhere to go; false when memory can't be had now.
bool stream_client::connection::have_room() noexcept
{
    if (begin_ == end_ && input_ && input_.unique())
        begin_ = end_ = 0;
    if (input_ && input_.size() - end_ >= min_input_room)
        return true;
    // What waits is less than a fragment header: everything else has moved on.
    lease fresh = client_.buffers_.try_acquire(input_size);
    if (!fresh)
        return false;
    if (begin_ != end_)
        std::memcpy(fresh.data(), input_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    input_ = std::move(fresh);
    return true;
}

bool stream_client::connection::on_readable() noexcept
{
    bool any = false;
    for (int i = 0; i < reads_per_poll; ++i) {
        if (!have_room()) {
            want_read(false);
            shard().timers().arm(retry_, shard().now() + memory_retry);
            return any;
        }
        const std::size_t direct = in_record_ ? fragment_left_ : 0;
        std::array<iovec, 2> space{};
        space[0] = {in_record_ ? record_.data() + record_size_ : nullptr, direct};
        space[1] = {input_.data() + end_, input_.size() - end_};
        const ssize_t got = ::readv(fd(), space.data(), 2);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return any;
        if (got < 0)
            return fail(error::from_errno(errno, "receive from the server"));
        if (got == 0)
            return fail(error(std::errc::connection_reset, "the server closed the connection"));
        any = true;
        const auto n = static_cast<std::size_t>(got);
        const std::size_t placed = std::min(n, direct);
        record_size_ += placed;
        fragment_left_ -= placed;
        end_ += n - placed;
        if (!parse())
            return true;
        if (n < direct + space[1].iov_len)
            return any;
    }
    return any;
}

// Takes apart what has arrived; false when the connection is over.
bool stream_client::connection::parse() noexcept
{
    for (;;) {
        if (in_record_) {
            const std::size_t n = std::min(fragment_left_, end_ - begin_);
            if (n != 0)
                std::memcpy(record_.data() + record_size_, input_.data() + begin_, n);
            begin_ += n;
            record_size_ += n;
            fragment_left_ -= n;
            if (fragment_left_ != 0)
                return true;
            if (last_fragment_) {
                in_record_ = false;
                const std::span<const std::byte> record(record_.data(), record_size_);
                if (!deliver(std::move(record_), record))
                    return false;
                record_.reset();
                record_size_ = 0;
                continue;
            }
        }
        if (end_ - begin_ < fragment_header_size)
            return true;
        const fragment_header header = decode_fragment_header(
            std::span<const std::byte, fragment_header_size>(input_.data() + begin_, fragment_header_size));
        begin_ += fragment_header_size;
        if (!in_record_ && header.last && header.length <= end_ - begin_ &&
            header.length <= client_.max_reply_) {
            const std::span<const std::byte> record(input_.data() + begin_, header.length);
            begin_ += header.length;
            if (!deliver(input_.share(), record))
                return false;
        } else if (!begin_fragment(header)) {
            return false;
        }
    }
}

bool stream_client::connection::begin_fragment(fragment_header header) noexcept
{
    const std::size_t size = record_size_ + header.length;
    if (size > client_.max_reply_)
        return fail(error(std::errc::message_size, "reply longer than max_reply", size));
    if (!record_ || record_.size() < size) {
        lease larger = client_.buffers_.try_acquire(size);
        if (!larger)
            return fail(error(std::errc::not_enough_memory, "no buffer for a reply", size));
        if (record_size_ != 0)
            std::memcpy(larger.data(), record_.data(), record_size_);
        record_ = std::move(larger);
    }
    in_record_ = true;
    fragment_left_ = header.length;
    last_fragment_ = header.last;
    return true;
}

bool stream_client::connection::deliver(lease owner, std::span<const std::byte> record) noexcept
{
    const auto prefix = peek(record);
    if (!prefix)
        return fail(error(std::errc::protocol_error, "record is no RPC message", record.size()));
    if (prefix->type == message_type::call)
        return take_callback(std::move(owner), record);
    // Replies to calls given up are dropped.
    if (outstanding* o = client_.find(prefix->xid))
        client_.complete(*o, reply(std::move(owner), record, payload(), false));
    return true;
}

bool stream_client::connection::take_callback(lease owner, std::span<const std::byte> record)
{
    if (client_.callbacks_ == nullptr)
        return true;
    if (record.size() > stream_client_options::max_callback)
        return fail(error(std::errc::message_size, "a call of the server is too long", record.size()));
    // An answer that is not out yet counts, or a server that does not read has any number of them kept.
    const std::size_t under_way = in_service_ + replies_.size();
    if (under_way >= client_.callback_credits_)
        return fail(
            error(std::errc::protocol_error, "more calls of the server at once than may be", under_way));
    ++in_service_;
    arrived_.push_back({std::move(owner), record});
    shard().post(serve_);
    return true;
}

task<void> stream_client::serve(callback c)
{
    const std::uint64_t epoch = epoch_;
    const std::string address = peer_.address(); // a new connection may bring others meanwhile
    const std::string name_of_it = peer_.to_string();
    const rpc::peer from{address, name_of_it, name(), peer_.port()};
    const auto is_open = [&] { return epoch == epoch_ && connected(); };
    lease memory = co_await buffers_.acquire(stream_client_options::max_callback);
    if (!is_open())
        co_return;
    if (!memory) {
        connection_->fail(error(std::errc::not_enough_memory, "a call of the server"));
        co_return;
    }
    reverse_call call(std::move(c.owner), c.message, from, buffers_, std::move(memory), fragment_header_size);
    const bool replies = co_await callbacks_->dispatch(call);
    if (!is_open())
        co_return;
    connection_->served();
    if (!replies) {
        if (!call.is_call())
            connection_->fail(error(std::errc::protocol_error, "a call of the server can't be read"));
        co_return;
    }
    const xdr::encoder& written = call.results();
    const std::size_t length = written.position();
    if (!written.ok() || fragment_header_size + length > stream_client_options::max_callback) {
        connection_->fail(
            error(std::errc::message_size, "the reply to a call of the server is too long", length));
        co_return;
    }
    lease bytes;
    if (written.payloads().empty()) {
        bytes = call.take_memory();
    } else {
        bytes = buffers_.try_acquire(fragment_header_size + length);
        if (!bytes) {
            connection_->fail(error(std::errc::not_enough_memory, "the reply to a call of the server"));
            co_return;
        }
        copy_message(written, call.attached(), bytes.bytes().subspan(fragment_header_size));
    }
    encode_fragment_header(std::span<std::byte, fragment_header_size>(bytes.data(), fragment_header_size),
                           {static_cast<std::uint32_t>(length), true});
    connection_->answer(std::move(bytes), fragment_header_size + length);
}

task<result<void>> stream_client::open()
{
    const auto to = net::endpoint::parse(address_);
    if (!to)
        co_return to.error();
    result<net::unique_fd> fd =
        co_await connect_stream(shard(), *to, options().connect_timeout, reserved_port_);
    if (!fd)
        co_return fd.error();
    ++epoch_;
    peer_ = *to;
    connection_ = std::make_unique<connection>(*this, std::move(*fd));
    co_return result<void>();
}

void stream_client::transmit(outstanding& o) noexcept { connection_->enqueue(o); }

void stream_client::retract(outstanding& o) noexcept
{
    if (connection_)
        connection_->forget(o);
}

void stream_client::drop() noexcept { connection_.reset(); }

} // namespace

result<std::unique_ptr<client_transport>> make_stream_client(reactor& shard, buffer_pool& buffers,
                                                             std::string_view address,
                                                             const stream_client_options& options)
{
    const auto parsed = net::endpoint::parse(address);
    if (!parsed && parsed.error() != std::errc::no_such_device)
        return parsed.error();
    return std::unique_ptr<client_transport>(
        std::make_unique<stream_client>(shard, buffers, address, options));
}

} // namespace verbena::rpc
