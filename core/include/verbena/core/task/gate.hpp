// SPDX-License-Identifier: Apache-2.0
// gate: lets work in until it is closed, then tells when the last has left. For orderly shutdown.
#pragma once

#include <verbena/core/task/event.hpp>

#include <cassert>
#include <cstddef>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena {

/// Lets work in until it is closed, and tells then when the last has left: for an orderly end. Shard-local.
/// Must outlive its passes.
class gate {
public:
    /// Keeps the gate from being empty while it lives. Move-only; empty if the gate was closed.
    class [[nodiscard("the gate counts only the passes that are kept")]] pass {
    public:
        pass() = default;
        pass(pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
        pass& operator=(pass&& other) noexcept
        {
            if (this != &other) {
                leave();
                gate_ = std::exchange(other.gate_, nullptr);
            }
            return *this;
        }
        ~pass() { leave(); }
        /// Whether it holds the gate open: enter() made it before close(), and it has not left since.
        explicit operator bool() const noexcept { return gate_ != nullptr; }
        /// Gives the pass up early, as its destruction does. On the gate's shard. Without a pass it does
        /// nothing.
        void leave() noexcept
        {
            if (gate* g = std::exchange(gate_, nullptr))
                g->left();
        }

    private:
        friend class gate;
        explicit pass(gate& g) noexcept : gate_(&g) {}
        gate* gate_ = nullptr;
    };

    gate() = default;
    gate(const gate&) = delete;
    gate& operator=(const gate&) = delete;
    ~gate() { assert(inside_ == 0 && "passes must not outlive their gate"); }

    /// A pass, or an empty one if the gate is closed.
    pass enter() noexcept
    {
        if (closed_)
            return {};
        ++inside_;
        return pass(*this);
    }
    /// Lets nobody in from now on, awaited or not. Idempotent. `co_await g.close()`. Completes when: the last has left. On
    /// cancel: it waits on, since what is inside was asked to stop by other means. Errors: none. Lifetime: the gate outlives the
    /// wait. Shard: that of those inside.
    event::shielded_awaiter close() noexcept
    {
        closed_ = true;
        if (inside_ == 0)
            empty_.set();
        return empty_.wait_shielded();
    }
    bool closed() const noexcept { return closed_; }
    std::size_t inside() const noexcept { return inside_; }

private:
    void left() noexcept
    {
        if (--inside_ == 0 && closed_)
            empty_.set();
    }
    std::size_t inside_ = 0;
    bool closed_ = false;
    event empty_;
};

} // namespace verbena

#pragma GCC visibility pop
