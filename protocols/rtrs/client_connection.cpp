// SPDX-License-Identifier: Apache-2.0
#include "client_connection.hpp"

#include "client_path.hpp"

#include <algorithm>

namespace verbena::rtrs {

namespace {

// A Send, which invalidates or brings a new key, and an immediate. Where the two are one message, one is left over.
constexpr std::uint32_t receives_of_an_answer = 2;

} // namespace

task<result<void>> client_connection::connect(const connect_request& m)
{
    const client_shared& shared = path_.shared();
    // Before the first answer nobody knows the session's depth; a server that says another than the first one is refused.
    const std::uint32_t depth = std::max({shared.queue_depth, service_queue_depth, std::uint32_t(512)});
    const auto private_data = encode(m);
    verbs::connect_options o;
    o.private_data = private_data;
    o.initiator_depth = 0; // nobody reads: RTRS has no RDMA Read
    o.responder_resources = 0;
    o.queue_pair.send_depth = 2 * depth + 16;
    o.queue_pair.receive_depth = receives_of_an_answer * depth + 8;
    o.timeout = shared.options.set_up;
    reserve(o.queue_pair.receive_depth);
    std::vector<std::byte> answer;
    auto made = co_await path_.device().connect(path_.address(), path_.domain(), o, answer);
    const auto reply = decode_connect_reply(answer);
    if (!made) {
        if (reply && reply->error != 0)
            co_return error(std::errc::connection_refused,
                            "the RTRS server refused the connection with an errno", reply->error);
        co_return made.error();
    }
    take(std::move(*made));
    if (!reply)
        co_return reply.error();
    if (reply->new_keys && !path_.device().query().send_with_immediate)
        co_return error(
            std::errc::operation_not_supported,
            "the RTRS server gives a new key for each request, for which this provider lacks Send with "
            "immediate: load the kernel's rtrs_server with always_invalidate=N");
    if (reply->error != 0)
        co_return error(std::errc::bad_message, "an RTRS server that accepts and refuses", reply->error);
    if (!path_.shared().agree(*reply))
        co_return error(std::errc::protocol_error,
                        "an RTRS server with other sizes than before, or a queue depth of 1",
                        reply->queue_depth);
    if (number_ != 0 && reply->new_keys != path_.new_keys())
        co_return error(std::errc::protocol_error,
                        "an RTRS server that gives new keys by some connections of a path and not by others",
                        number_);
    path_.set_new_keys(reply->new_keys);
    co_return result<void>();
}

task<result<void>> client_connection::stand(std::uint32_t requests)
{
    const std::uint32_t count = receives_of_an_answer * requests;
    lease memory;
    std::uint32_t bytes = 0;
    if (path_.new_keys()) {
        bytes = new_key_size;
        memory = co_await path_.shared().buffers.acquire(std::size_t(count) * bytes);
        if (!memory)
            co_return error(std::errc::not_enough_memory, "memory for the keys that an RTRS server gives",
                            count * bytes);
    }
    if (!is_up() || !post_receives(count, std::move(memory), bytes))
        co_return error(std::errc::no_buffer_space, "post receives");
    co_return result<void>();
}

result<void> client_connection::post(std::span<const verbs::send_request> batch) noexcept
{
    if (down_)
        return error(std::errc::not_connected, "the connection has ended");
    return queue_pair_->post_send(batch);
}

void client_connection::end(bool orderly) noexcept
{
    if (!is_up())
        return;
    if (orderly)
        queue_pair_->disconnect();
    else
        queue_pair_->abort(error(std::errc::connection_aborted, "the path of this connection has ended"));
}

void client_connection::on_completions(std::span<const verbs::completion> batch) noexcept
{
    for (const auto& c : batch) {
        if (!note(c) && c.id != 0 && c.status == verbs::status::success)
            path_.left(static_cast<std::uint32_t>(c.id - 1));
    }
    if (!arrived_.empty())
        path_.shared().shard.post(static_cast<deferred&>(*this));
}

void client_connection::on_end(const error& cause) noexcept { path_.connection_ended(cause); }

// First what came, then the receives again: keys lie in them. There are enough for all that the server may still send, as
// who waits for an answer asks for nothing new before this returns.
void client_connection::run() noexcept
{
    handling_.clear();
    handling_.swap(arrived_);
    for (const arrival& a : handling_)
        handle(a);
    if (is_up() && !repost(handling_))
        path_.broken(path_end::lost, error(std::errc::no_buffer_space, "receives could not be posted again"));
}

void client_connection::handle(const arrival& a) noexcept
{
    path_.heard();
    const auto bad = [this](const char* what, std::uint64_t detail) {
        path_.broken(path_end::bad_message, error(std::errc::bad_message, what, detail));
    };
    if (key_ && a.kind != verbs::opcode::receive_immediate) {
        bad("an RTRS server's message between a chunk's new key and its answer", a.length);
        return;
    }
    switch (a.kind) {
    case verbs::opcode::receive_immediate:
        path_.arrived(a.immediate, key_ ? &*key_ : nullptr);
        key_.reset();
        return;
    case verbs::opcode::receive_with_immediate: {
        const auto key = decode_new_key(in_slot(a));
        if (!path_.new_keys() || !key || a.length != new_key_size)
            bad("an RTRS server's Send with an immediate that is no new key", a.length);
        else
            path_.arrived(a.immediate, &*key);
        return;
    }
    default: break;
    }
    if (a.slot == no_slot) {
        path_.informed(a.length);
        return;
    }
    if (a.length == 0)
        return; // invalidated the sink of a read
    const auto key = decode_new_key(in_slot(a));
    if (!path_.new_keys() || !path_.device().query().immediates_apart || !key || a.length != new_key_size)
        bad("an RTRS server's Send that is no new key", a.length);
    else
        key_ = *key;
}

} // namespace verbena::rtrs
