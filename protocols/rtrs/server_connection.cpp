// SPDX-License-Identifier: Apache-2.0
#include "server_connection.hpp"

#include "path_part.hpp"
#include "server_chunk.hpp"
#include "server_memory.hpp"
#include "server_path.hpp"
#include "server_session.hpp"
#include "server_shared.hpp"

#include <verbena/core/net/connection_list.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/yield.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>

namespace verbena::rtrs {

namespace {

// Of the request that is to be looked at when its chunk's key is gone: its immediate, and this.
constexpr std::uint64_t key_is_gone = std::uint64_t(1) << 32;
// Of the answer to a heartbeat.
constexpr std::uint64_t heartbeat_answered = std::uint64_t(1) << 33;
// What a connection is served before others have their turn.
constexpr unsigned requests_of_a_turn = 64;

// In place of its message, since the client waits for no text.
std::uint16_t code_of(const error& e) noexcept
{
    const int value = e.errno_value();
    return value > 0 && value <= max_response_error ? static_cast<std::uint16_t>(value) : std::uint16_t(EIO);
}

} // namespace

void request::report(request_report& into) const noexcept
{
    into.trace = trace();
    if (from_ != nullptr) {
        into.peer.append(from_->peer);
        into.transport.append(from_->transport);
    }
    into.protocol.append("rtrs");
    into.operation.append("message");
    if (detail() != nullptr)
        detail()->describe(into);
}

server_connection::server_connection(path_part& path, std::uint16_t number, connection_charges charged)
    : connection(number),
      path_(path),
      charged_(std::move(charged)),
      origin_{path.whole().peer(), path.device().query().provider, new_connection_number()}
{
    path_.shared().stats.connections.add(1);
}

server_connection::~server_connection() { path_.shared().stats.connections.add(-1); }

task<bool> server_connection::accept(std::unique_ptr<verbs::connect_request> request, std::uint32_t receives)
{
    const bool good = co_await answer(std::move(request), receives);
    accepted_ = good && !path_.closing();
    // However far it came: the end of a queue pair is heard of.
    if (!accepted_ && is_up())
        queue_pair_->abort(error(std::errc::connection_aborted, "the connection could not be set up"));
    co_return accepted_;
}

task<bool> server_connection::answer(std::unique_ptr<verbs::connect_request> request, std::uint32_t receives)
{
    const server_options& own = path_.shared().options;
    send_depth_ = send_depth_of(own);
    verbs::connect_options o;
    o.initiator_depth = 0; // nobody reads: RTRS has no RDMA Read
    o.responder_resources = 0;
    o.queue_pair.send_depth = send_depth_;
    o.queue_pair.receive_depth = receives + 1;
    reserve(o.queue_pair.receive_depth + own.queue_depth); // and keys that are gone
    auto made = co_await request->make_queue_pair(path_.domain(), o.queue_pair);
    if (!made)
        co_return false;
    take(std::move(*made));
    if (path_.closing())
        co_return false;
    // The first message is the only one that brings bytes. Everything else is written into chunks.
    if (number_ == 0) {
        const verbs::receive_request information{0, {path_.service_memory().data(), info_request_size, 0}};
        if (!queue_pair_->post_receive({&information, 1}))
            co_return false;
    }
    if (!post_receives(receives))
        co_return false;
    connect_reply reply;
    reply.queue_depth = own.queue_depth;
    reply.max_io_size = path_.shared().max_io_size();
    reply.max_header_size = own.header_size;
    reply.new_keys = own.always_invalidate;
    const auto private_data = encode(reply);
    o.private_data = private_data;
    const auto accepted = co_await request->accept(o);
    co_return accepted.has_value();
}

void server_connection::end(bool orderly) noexcept
{
    if (!is_up())
        return;
    if (orderly && accepted_) {
        // What was posted drains first, and only what is signalled shows that: a Write of nothing.
        verbs::send_request last;
        last.opcode = verbs::opcode::rdma_write;
        (void)queue_pair_->post_send({&last, 1});
        queue_pair_->disconnect();
    } else {
        queue_pair_->abort(error(std::errc::connection_aborted, "the path of this connection has ended"));
    }
}

bool server_connection::post(std::span<verbs::send_request> batch, bool told) noexcept
{
    if (down_)
        return false;
    // A completion now and then keeps the queue from filling up.
    unsignalled_ += static_cast<std::uint32_t>(batch.size());
    for (auto& r : batch)
        r.signalled = false;
    if (told || unsignalled_ >= signalled_each) {
        batch.back().signalled = true;
        unsignalled_ = 0;
    }
    if (const auto posted = queue_pair_->post_send(batch); !posted) {
        path_.close(path_end::lost, posted.error());
        return false;
    }
    return true;
}

void server_connection::on_completions(std::span<const verbs::completion> batch) noexcept
{
    for (const auto& c : batch) {
        if (note(c) || c.status != verbs::status::success)
            continue;
        if ((c.id & key_is_gone) != 0) {
            arrived_.push_back({c.opcode, 0, static_cast<std::uint32_t>(c.id), no_slot});
        } else if (c.id == heartbeat_answered) {
            const auto sent = std::exchange(answer_, heartbeat_answer::none);
            if (sent == heartbeat_answer::one_more && !path_.closing())
                answer_heartbeat();
        }
    }
    if (!arrived_.empty() && handled_ == handling_.size())
        path_.shared().shard.post(static_cast<deferred&>(*this));
}

void server_connection::on_end(const error& cause) noexcept
{
    path_.close(cause == verbs::connection_end::orderly ? path_end::closed : path_end::lost, cause);
}

void server_connection::run() noexcept
{
    if (handled_ == handling_.size()) {
        handled_ = 0;
        handling_.clear();
        handling_.swap(arrived_);
        // First receives for what comes next, then what has come.
        if (!down_ && !path_.closing() && !repost(handling_))
            path_.close(path_end::lost,
                        error(std::errc::no_buffer_space, "receives could not be posted again"));
    }
    try {
        for (unsigned i = 0; handled_ < handling_.size(); ++i) {
            if (path_.closing()) {
                handled_ = handling_.size();
                return;
            }
            if (i == requests_of_a_turn) {
                path_.shared().shard.post_last(static_cast<deferred&>(*this));
                return;
            }
            handle(handling_[handled_++]);
        }
    } catch (...) {
        path_.on_exception(std::current_exception());
    }
    if (!arrived_.empty() && !path_.closing())
        path_.shared().shard.post(static_cast<deferred&>(*this));
}

void server_connection::handle(const arrival& a)
{
    if (a.kind == verbs::opcode::unbind) {
        look_at_request(a.immediate);
        return;
    }
    path_.heard();
    if (a.kind != verbs::opcode::receive_immediate) {
        if (number_ == 0)
            path_.start_information(a.length);
        else
            path_.close(path_end::bad_message,
                        error(std::errc::bad_message, "a Send by a connection of requests"));
        return;
    }
    switch (type_of(a.immediate)) {
    case immediate_type::request: take_request(a.immediate); return;
    case immediate_type::heartbeat: answer_heartbeat(); return;
    case immediate_type::heartbeat_reply: path_.heartbeat_answered(); return;
    default:
        path_.close(path_end::bad_message,
                    error(std::errc::bad_message, "an immediate that clients do not send", a.immediate));
    }
}

// One answer at a time, and one more for all heartbeats that come before the device has sent it: a client that sends
// heartbeats and reads nothing would have the send queue grow.
void server_connection::answer_heartbeat() noexcept
{
    if (answer_ != heartbeat_answer::none) {
        answer_ = heartbeat_answer::one_more;
        return;
    }
    answer_ = heartbeat_answer::on_its_way;
    verbs::send_request reply;
    reply.id = heartbeat_answered;
    reply.opcode = verbs::opcode::write_with_immediate;
    reply.immediate = make_immediate(immediate_type::heartbeat_reply);
    post({&reply, 1}, true);
}

void server_connection::take_request(std::uint32_t immediate)
{
    server_session& session = path_.session();
    const request_layout layout = path_.shared().layout;
    const std::uint32_t number = layout.chunk(immediate);
    const std::uint32_t offset = layout.offset(immediate);
    if (!path_.connected() || number >= session.chunks().size() ||
        offset >= path_.shared().options.chunk_size) {
        path_.close(path_end::bad_message,
                    error(std::errc::bad_message, "a request before its time, or of no chunk", immediate));
        return;
    }
    if (path_.draining())
        return; // the client sends it again, to whoever serves it then
    if (!path_.shared().options.always_invalidate) {
        look_at_request(immediate);
        return;
    }
    if (!path_.take_key(number)) {
        path_.close(path_end::bad_message, error(std::errc::bad_message,
                                                 "a request into a chunk whose answer has not come", number));
        return;
    }
    verbs::send_request unbind;
    unbind.opcode = verbs::opcode::unbind;
    unbind.grant = &path_.grant_of(number);
    const bool at_once = path_.domain().renews_at_once();
    if (!at_once)
        unbind.id = key_is_gone | immediate;
    if (!post({&unbind, 1}, !at_once))
        return;
    path_.shared().stats.invalidations.add();
    if (at_once)
        look_at_request(immediate);
}

// What it says is not looked at before nobody can write it any more.
void server_connection::look_at_request(std::uint32_t immediate)
{
    server_session& session = path_.session();
    const request_layout layout = path_.shared().layout;
    const std::uint32_t number = layout.chunk(immediate);
    const std::uint32_t offset = layout.offset(immediate);
    // Copied before it is checked: the client may write on.
    const auto header = decode_io_header(session.chunks()[number].memory.subspan(offset));
    const std::uint32_t data_size = header && header->user_size <= offset ? offset - header->user_size : 0;
    const bool fits = header && header->user_size <= offset &&
                      (!header->sink || (header->sink->length != 0 && header->sink->length <= data_size));
    if (!fits) {
        path_.close(
            path_end::bad_message,
            header ? error(std::errc::bad_message, "lengths of a request that don't fit its chunk", offset)
                   : header.error());
        return;
    }
    switch (session.take_chunk(number, *this, *header, data_size)) {
    case chunk_turn::now: start(number, *header, data_size); return;
    case chunk_turn::later: path_.shared().stats.repeated.add(); return;
    case chunk_turn::never:
        path_.close(path_end::bad_message, error(std::errc::bad_message,
                                                 "a request into a chunk whose answer has not come", number));
        return;
    }
}

void server_connection::start(std::uint32_t chunk, const io_header& header, std::uint32_t data_size)
{
    try {
        path_.requests().spawn(already_made, serve(chunk, header, data_size));
    } catch (
        ...) { // the chunk is nobody's, or who sends the request again by another path would wait for ever
        path_.on_exception(std::current_exception());
        path_.session().give_chunk(chunk, path_);
    }
}

task<void> server_connection::serve(std::uint32_t number, io_header header, std::uint32_t data_size)
{
    server_session& session = path_.session();
    server_stats& stats = path_.shared().stats;
    path_counters& counters = path_.counters();
    // The turn in which it came: a clock read less, and what it waited for others counts.
    const time_point began = path_.shared().shard.now();
    counters.in_flight.add(1);
    const std::span<std::byte> memory = session.chunks()[number].memory;
    std::size_t size = data_size;
    if (!header.is_write)
        size = header.sink ? header.sink->length : 0;
    request r(header.is_write, memory.first(size), memory.subspan(data_size, header.user_size));
    r.came_by(origin_, ++requests_);
    path_.shared().shard.requests().begin(r);
    served_by here(r);
    co_await here;
    std::uint16_t code = EIO;
    try {
        const auto done = co_await session.handler().serve(r);
        code = done ? std::uint16_t(0) : code_of(done.error());
    } catch (...) {
        stats.exceptions.add();
        log_limited(stats.exceptions_logged, log_level::error, "rtrs", "an exception left a service",
                    {{"session", session.name()},
                     {"call", trace_name(r.trace())},
                     {"exception", what_of(std::current_exception())}});
    }
    if (!header.is_write) {
        size = code == 0 ? r.produced() : 0;
        // What the service has written into the chunk and no answer brings: the client could have it written to a
        // device, and read it there. Here and in no task of its own, for which there may be no memory, and to its end
        // though the path may end: the session's other paths use the chunk.
        std::span<std::byte> unsent = r.data().subspan(size);
        for (unsent = clear_some(unsent); !unsent.empty(); unsent = clear_some(unsent))
            co_await yield();
    }
    r.served(code == 0 ? std::string_view("ok") : std::string_view("failed"));
    (header.is_write ? stats.writes : stats.reads).add();
    (header.is_write ? stats.write_bytes : stats.read_bytes).add(code == 0 ? size : 0);
    if (code != 0)
        stats.failed.add();
    counters.in_flight.add(-1);
    counters.ended(header.is_write, code == 0, size,
                   static_cast<std::uint64_t>((path_.shared().shard.clock().now() - began).count()));
    // Before the answer: with it the client may use the chunk again, and by a connection of another shard. A copy that waits begins behind
    // the answer.
    const bool is_idle = session.leave_chunk(number, path_);
    answer(number, header, static_cast<std::uint32_t>(r.produced()), code);
    if (!is_idle)
        session.next_copy(number);
    path_.request_over();
}

// Of the sink no more is written than the service has filled: behind it lies what others have left in the chunk.
void server_connection::answer(std::uint32_t number, const io_header& header, std::uint32_t produced,
                               std::uint16_t code) noexcept
{
    if (down_ || path_.closing()) {
        path_.shared().stats.unanswered.add();
        return;
    }
    std::array<verbs::send_request, most_of_an_answer + 1> batch;
    std::size_t count = 0;
    verbs::segment data;
    if (code == 0 && header.sink && produced != 0) {
        data = {path_.session().chunks()[number].memory.data(), produced, 0};
        verbs::send_request& write = batch[count++];
        write.opcode = verbs::opcode::rdma_write;
        write.segments = {&data, 1};
        write.remote_address = header.sink->address;
        write.remote_key = header.sink->key;
    }
    const bool invalidates = header.sink && header.invalidate && path_.device().query().remote_invalidate;
    if (invalidates) {
        verbs::send_request& send = batch[count++];
        send.opcode = verbs::opcode::send_with_invalidate;
        send.invalidate_key = header.sink->key;
    }
    verbs::segment message;
    if (path_.shared().options.always_invalidate) {
        verbs::send_request& bind = batch[count++];
        bind.opcode = verbs::opcode::bind;
        bind.grant = &path_.grant_of(number);
        const new_key next{static_cast<std::uint16_t>(number), bind.grant->next_key()};
        if (next.key == 0) {
            path_.close(path_end::no_memory,
                        error(std::errc::not_enough_memory, "the next key of a chunk", number));
            path_.shared().stats.unanswered.add();
            return;
        }
        const std::span<std::byte> bytes = path_.key_message(number);
        std::ranges::copy(encode(next), bytes.begin());
        message = {bytes.data(), new_key_size, 0};
    }
    verbs::send_request& last = batch[count++];
    last.opcode =
        message.length != 0 ? verbs::opcode::send_with_immediate : verbs::opcode::write_with_immediate;
    last.segments = {&message, message.length != 0 ? 1u : 0u};
    last.immediate = encode(response{number, code}, invalidates);
    const bool renews = message.length != 0;
    if (renews)
        path_.begin_new_key(number);
    post(std::span(batch).first(count));
    if (renews)
        path_.give_key(number);
}

} // namespace verbena::rtrs
