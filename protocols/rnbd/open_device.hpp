// SPDX-License-Identifier: Apache-2.0
// A device that a session has open, as the shards of its connections use it.
#pragma once

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/protocols/rnbd/server.hpp>
#include <verbena/protocols/storage/block_backend.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace verbena::rnbd {

/// A place for a device of a session. Requests look at it on any shard, without a lock: each counts itself where its shard counts, and
/// then looks whether the device is open. Whoever closes the device says so first, and then adds up what was counted. So either sees
/// the other one. The session's home alone opens and closes; a place that was made stays for as long as the session.
class open_device final : public remote_message {
public:
    /// Hears at home that no request uses a device that is to be closed.
    class owner {
    public:
        virtual void unused(open_device& d) noexcept = 0;

    protected:
        ~owner() = default;
    };
    enum class state : std::uint8_t {
        closed,
        open,
        closing, ///< no more requests begin
        taken, ///< this server has closed it; its number is not another device's before its client has closed it, too
    };

    /// `home` is the session's; nullptr: all is on one shard.
    open_device(owner& o, std::uint32_t number, reactor* home) noexcept
        : number(number), owner_(&o), home_(home)
    {
    }

    // What stands here, once it is open, until it is closed.
    std::size_t in_table = 0;
    access_mode mode = access_mode::read_only;
    storage::block_backend* backend = nullptr;
    bool read_only = false;
    const std::uint32_t number; ///< in the session

    // At home.

    state now() const noexcept { return state_.load(std::memory_order_relaxed); }
    /// What stands here is there.
    void open() noexcept
    {
        takes_away = false;
        closed.reset();
        state_.store(state::open);
    }
    /// No request begins any more. True: none is under way; else owner::unused() follows.
    bool begin_close() noexcept
    {
        state_.store(state::closing);
        return is_unused();
    }
    void end_close() noexcept
    {
        state_.store(takes_away ? state::taken : state::closed);
        closed.set();
    }
    /// Its client has closed what was taken from it.
    void free_number() noexcept { state_.store(state::closed); }
    /// It counts as open in the table.
    bool is_in_use() const noexcept { return now() == state::open || now() == state::closing; }
    bool takes_away = false; ///< it is closed by this server, not by its client
    event closed;            ///< others may open it
    /// The session goes, whose requests have ended.
    void forget_owner() noexcept { owner_ = nullptr; }

    /// A request to a device, on any shard. The device stays open for as long as this lives.
    class use {
    public:
        use(open_device& d, const reactor& here) noexcept : device_(d), here_(here), count_(d.count_of(here))
        {
            count_.fetch_add(1);
            is_open_ = d.state_.load() == state::open;
        }
        use(const use&) = delete;
        ~use()
        {
            count_.fetch_sub(1);
            if (device_.state_.load() == state::closing)
                device_.leaves(here_);
        }
        explicit operator bool() const noexcept { return is_open_; }

    private:
        open_device& device_;
        const reactor& here_;
        std::atomic<std::uint32_t>& count_;
        bool is_open_ = false;
    };

    /// For use. `self` is what keeps this.
    void kept_by(const std::shared_ptr<open_device>& self) noexcept { self_ = self; }

private:
    struct alignas(64) use_count {
        std::atomic<std::uint32_t> value{0};
    };
    std::atomic<std::uint32_t>& count_of(const reactor& r) noexcept
    {
        return uses_[r.index() % uses_.size()].value;
    }
    bool is_unused() const noexcept
    {
        for (const use_count& u : uses_) {
            if (u.value.load() != 0)
                return false;
        }
        return true;
    }
    void leaves(const reactor& here) noexcept
    {
        if (home_ == nullptr || &here == home_) {
            look();
        } else if (!told_.exchange(true)) {
            keep_ = self_.lock();
            home_->post_remote(*this);
        }
    }
    void deliver() noexcept override
    {
        const std::shared_ptr<open_device> self = std::move(keep_);
        told_.store(false);
        look();
    }
    void look() noexcept
    {
        if (owner_ != nullptr && now() == state::closing && is_unused())
            owner_->unused(*this);
    }

    owner* owner_;
    reactor* const home_;
    std::atomic<state> state_{state::closed};
    std::atomic<bool> told_{false};     // a message is on its way home
    std::shared_ptr<open_device> keep_; // for as long as it is
    std::weak_ptr<open_device> self_;
    std::array<use_count, 8> uses_; // shards that share one only wait for each other's cache line
};

} // namespace verbena::rnbd
