// SPDX-License-Identifier: Apache-2.0
// One RDMA device as one shard uses it: what it can do, and its completion queues.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/reactor/io_watch.hpp>
#include <verbena/core/verbs/verbs.hpp>
#include <verbena/transports/rdma.hpp>

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace verbena::rdma {

class context_impl;
class notice_box;
class queue_pair;

/// What a device can do, in the terms of the interface.
struct device_limits {
    verbs::capabilities can;
    ibv_device_attr attributes{};
    bool iwarp = false;
    /// rxe hands the kernel's flag for "with invalidate" to user space, where that bit says "checksum good".
    unsigned invalidate_flags = IBV_WC_WITH_INV;
    /// Of a completion queue.
    std::uint32_t usual_entries = 16384;
    bool lists_miscounted = false; ///< by ibv_wr_set_sge_list: rxe
    grant_kind grants = grant_kind::region;
    bool raises_sigpipe = false;         ///< siw sends in the thread that posts, without MSG_NOSIGNAL
    bool read_sink_remote_write = false; ///< iWARP but siw: the sink's region needs remote write
};
/// Grants are made by `wanted`, if that is given, else by the best there is. Blocks. Errors: those of ibv_query_device;
/// EOPNOTSUPP: no such windows.
result<device_limits> query(ibv_context* verbs, std::optional<grant_kind> wanted = {});

/// Sends per queue pair that are ours: binds and invalidates of windows.
inline constexpr std::uint32_t internal_depth = 256;
/// Bytes a device's queue pairs take inline. siw's limit is 80.
inline constexpr std::uint32_t inline_bytes = 64;

constexpr unsigned flag_if(bool set, unsigned flag) noexcept { return set ? flag : 0; }

/// What a queue pair may have in its completion queue at once.
struct queue_entries {
    std::uint32_t own = 0;
    const void* shared = nullptr;   ///< its shared receive queue, if it has one,
    std::uint32_t shared_depth = 0; ///< whose entries count once for all queue pairs that have it
};

/// A completion queue that several queue pairs share; it has room for all that they can have outstanding.
struct completion_queue {
    ibv_cq* cq = nullptr;
    std::uint64_t number = 0; ///< its serial
    std::uint32_t capacity = 0;
    std::uint32_t used = 0;
    bool retired = false;
    struct sharing {
        const void* queue;
        std::uint32_t pairs;
    };
    std::vector<sharing> shared; ///< receive queues of its queue pairs

    std::uint32_t needed_for(const queue_entries& e) const noexcept;
    void take(const queue_entries& e);
    void give_back(const queue_entries& e) noexcept;
};

/// What else a queue of the device's memory is mapped for: that keeps the device's file, closed or not.
class device_resident : public list_hook {
public:
    /// The device goes. Yields the queue, which is nobody's to use from then on.
    virtual ibv_srq* surrender() noexcept = 0;

protected:
    ~device_resident() = default;
};

class device {
public:
    /// `where` has entered the device (shared_devices), which this undoes.
    device(context_impl& owner, ibv_context* verbs, const device_limits& limits,
           std::shared_ptr<notice_box> where);
    ~device();
    device(const device&) = delete;

    /// Keeps the completion queues; whoever makes or has a queue pair on the device holds one.
    class use {
    public:
        explicit use(device& d) noexcept : device_(&d) { ++d.uses_; }
        use(use&& other) noexcept : device_(std::exchange(other.device_, nullptr)) {}
        use(const use&) = delete;
        ~use() { end(); }
        void end() noexcept
        {
            if (device_ != nullptr && --device_->uses_ == 0 && device_->gone())
                std::exchange(device_, nullptr)->let_go();
            device_ = nullptr;
        }

    private:
        device* device_;
    };

    ibv_context* verbs() const noexcept { return verbs_; }
    const device_limits& limits() const noexcept { return limits_; }
    /// One with `entries` to spare, which are taken.
    task<result<completion_queue*>> take_room(queue_entries entries);
    /// Hands what is there to the context; true if there was anything. Bounded unless `all`.
    bool poll(bool all) noexcept;
    /// It was removed: its completion queues tell nothing any more, and go with the last use.
    void set_gone() noexcept;
    bool gone() const noexcept { return gone_.load(std::memory_order_relaxed); }
    /// The completion queue of this serial is broken, as the device says; no queue pair gets it any more. False if it
    /// is another's.
    bool retire(std::uint64_t number) noexcept;
    /// A queue pair that takes its receives from a shared queue, by the number that its completions have: the device's own.
    void note(queue_pair& q, std::uint32_t number) { by_number_[number] = &q; }
    /// The last of its completions is taken before another queue pair can have its number.
    void forget(const queue_pair& q, std::uint32_t number) noexcept
    {
        if (const auto i = by_number_.find(number); i != by_number_.end() && i->second == &q)
            by_number_.erase(i);
    }
    queue_pair* numbered(std::uint32_t number) const noexcept
    {
        const auto i = by_number_.find(number);
        return i != by_number_.end() ? i->second : nullptr;
    }
    /// Until it goes or surrenders. While a `use` is held.
    void note(device_resident& r) noexcept { residents_.push_back(r); }
    /// Asks for an event at the next completion.
    bool arm() noexcept;

private:
    class wake_up final : public io_watch {
    public:
        wake_up(device& d, reactor& r, int fd) noexcept : io_watch(r, fd, 0), device_(d) {}

    private:
        bool on_readable() noexcept override;
        void on_writable() noexcept override {}
        device& device_;
    };
    class listening final : public io_watch {
    public:
        listening(device& d, reactor& r, int fd) noexcept : io_watch(r, fd, 0), device_(d) {}

    private:
        bool on_readable() noexcept override;
        void on_writable() noexcept override {}
        device& device_;
    };
    class leaving;
    result<void> make(completion_queue& q, std::uint32_t entries) noexcept;
    void let_go() noexcept;
    std::unique_ptr<leaving> take_all() noexcept;

    context_impl& owner_;
    ibv_context* verbs_;
    device_limits limits_;
    ibv_comp_channel* channel_ = nullptr;
    std::unique_ptr<wake_up> wake_up_;
    std::vector<std::unique_ptr<completion_queue>> queues_;
    intrusive_list<device_resident> residents_;
    std::unordered_map<std::uint32_t, queue_pair*> by_number_;
    bool making_ = false; // a completion queue
    event made_;
    std::atomic<bool> gone_{false}; // pool threads look at it
    std::size_t uses_ = 0;
    std::shared_ptr<notice_box> where_; // until it let go
    std::unique_ptr<listening> listening_;
};

} // namespace verbena::rdma
