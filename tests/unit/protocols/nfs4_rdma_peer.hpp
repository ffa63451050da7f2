// SPDX-License-Identifier: Apache-2.0
// A client's end of a connection to a data server: it reads and writes memory that layouts have granted.
#pragma once

#include <verbena/core/task/event.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/core/verbs/verbs.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::test {

/// A connection of a client to the data server.
class rdma_peer final : public verbs::completion_handler {
public:
    void use(std::unique_ptr<verbs::queue_pair> q)
    {
        q_ = std::move(q);
        q_->set_handler(this);
    }
    bool is_up() const noexcept { return q_ && q_->connected(); }
    /// Whether the peer's end took it; of a read, also what it got.
    task<bool> write(const verbs::remote_segment& to, std::uint64_t at, std::string_view text)
    {
        std::vector<std::byte> bytes(text.size());
        std::ranges::copy(std::as_bytes(std::span(text)), bytes.begin());
        co_return co_await run(verbs::opcode::rdma_write, to, at, bytes);
    }
    task<std::optional<std::string>> read(const verbs::remote_segment& from, std::uint64_t at,
                                          std::size_t length)
    {
        std::vector<std::byte> bytes(length);
        const bool done = co_await run(verbs::opcode::rdma_read, from, at, bytes);
        if (!done)
            co_return std::nullopt;
        co_return std::string(reinterpret_cast<const char*>(bytes.data()), length);
    }
    void close() { q_.reset(); }

    void on_completions(std::span<const verbs::completion> batch) noexcept override
    {
        for (const verbs::completion& c : batch)
            if (const auto waits = waiting_.find(c.id); waits != waiting_.end()) {
                waits->second->status = c.status;
                waits->second->over.set();
            }
    }
    void on_disconnected(const error&) noexcept override {}

private:
    struct operation {
        event over;
        verbs::status status = verbs::status::fatal_error;
    };
    task<bool> run(verbs::opcode what, const verbs::remote_segment& there, std::uint64_t at,
                   std::span<std::byte> bytes)
    {
        operation o;
        const std::uint64_t id = next_++;
        waiting_[id] = &o;
        const verbs::segment local{bytes.data(), static_cast<std::uint32_t>(bytes.size()), 0};
        verbs::send_request r;
        r.id = id;
        r.opcode = what;
        r.segments = std::span(&local, 1);
        r.remote_address = there.address + at;
        r.remote_key = there.key;
        bool done = false;
        if (is_up() && q_->post_send(std::span(&r, 1))) {
            (void)co_await o.over.wait();
            done = o.status == verbs::status::success;
        }
        waiting_.erase(id);
        co_return done;
    }
    std::unique_ptr<verbs::queue_pair> q_;
    std::map<std::uint64_t, operation*> waiting_;
    std::uint64_t next_ = 1;
};

} // namespace verbena::test
