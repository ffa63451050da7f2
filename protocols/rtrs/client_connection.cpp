// SPDX-License-Identifier: Apache-2.0
#include "client_path.hpp"

#include <algorithm>

namespace verbena::rtrs {

namespace {

// Of each request, a Write; of each answer a Send that invalidates and an immediate.
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
    if (reply->new_keys)
        co_return error(std::errc::operation_not_supported,
                        "the RTRS server gives a new key for each request, which this client can't follow: "
                        "load the kernel's "
                        "rtrs_server with always_invalidate=N");
    if (reply->error != 0)
        co_return error(std::errc::bad_message, "an RTRS server that accepts and refuses", reply->error);
    if (!path_.shared().agree(*reply))
        co_return error(std::errc::protocol_error,
                        "an RTRS server with other sizes than before, or a queue depth of 1",
                        reply->queue_depth);
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

void client_connection::on_end(const error& cause) noexcept { path_.broken(cause); }

void client_connection::run() noexcept
{
    handling_.clear();
    handling_.swap(arrived_);
    if (is_up() && !repost(handling_)) {
        path_.broken(error(std::errc::no_buffer_space, "receives could not be posted again"));
        return;
    }
    for (const arrival& a : handling_)
        handle(a);
}

void client_connection::handle(const arrival& a) noexcept
{
    path_.heard();
    if (a.kind == verbs::opcode::receive_immediate)
        path_.arrived(a.immediate);
    else if (number_ == 0 && a.length != 0)
        path_.informed(a.length);
    // What is left are Sends of nothing, which invalidated the sink of a read.
}

} // namespace verbena::rtrs
