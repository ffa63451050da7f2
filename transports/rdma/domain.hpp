// SPDX-License-Identifier: Apache-2.0
// Memory as devices know it: regions, the memory of buffer pools, and grants by window or by region.
//
// A domain has a part on each device that its queue pairs use; a region is registered with every part.
#pragma once

#include "device.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/semaphore.hpp>

#include <atomic>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

namespace verbena::rdma {

class domain;
class memory_grant;
class queue_pair;
class whole_domain;

/// A domain's own on one device.
struct domain_part {
    explicit domain_part(device& d) noexcept : on(d) {}
    /// With room for `entries` binds at once, and not much before them; nullptr: there is none now.
    queue_pair* binder(std::size_t entries) const noexcept;
    device& on;
    std::vector<ibv_mw*>& free_windows(ibv_mw_type type) noexcept
    {
        return type == IBV_MW_TYPE_1 ? free_type_1 : free_type_2;
    }
    ibv_pd* pd = nullptr;
    std::vector<ibv_mw*> free_type_1;
    std::vector<ibv_mw*> free_type_2;
    event moved;                    ///< requests of our own are over, or a queue pair has ended
    std::vector<queue_pair*> pairs; ///< those that were opened and have not ended
    std::unordered_map<std::uint32_t, memory_grant*> grants; ///< by key, which is the device's own
};

/// Memory that is registered with each part of a domain.
class registered_memory final : public verbs::region {
public:
    registered_memory(domain& d, std::span<std::byte> memory) noexcept : domain_(d), memory_(memory) {}
    ~registered_memory() override;
    /// Requests and grants find it from now on. On the shard, once add_parts() succeeded.
    void publish();

    std::uint32_t local_key() const noexcept override { return id_; }
    bool covers(std::span<const std::byte> part) const noexcept
    {
        return part.data() >= memory_.data() && part.size() <= memory_.size() &&
               static_cast<std::size_t>(part.data() - memory_.data()) <= memory_.size() - part.size();
    }
    std::span<std::byte> memory() const noexcept { return memory_; }
    /// The device's key; `part` is the number of one that the memory is registered with.
    bool knows(std::size_t part) const noexcept { return part < keys_.size() && keys_[part] != nullptr; }
    std::uint32_t key(std::size_t part) const noexcept { return keys_[part]->lkey; }
    ibv_mr* with(std::size_t part) const noexcept { return keys_[part]; }
    /// With the parts that it isn't registered with yet. Blocks; any thread, one at a time.
    result<void> add_parts() noexcept;
    /// No more with the part of this number, the last one.
    void drop_part(std::size_t number) noexcept;

private:
    domain& domain_;
    std::span<std::byte> memory_;
    std::uint32_t id_ = 0;
    std::vector<ibv_mr*> keys_; // by part; nullptr: it came when the part's device had gone
};

class memory_grant final : public verbs::grant_slot, public list_hook, private remote_message {
public:
    memory_grant(domain& d, std::span<std::byte> memory) noexcept : domain_(d), memory_(memory) {}
    ~memory_grant() { revoke(); }

    verbs::remote_segment where() const noexcept override
    {
        return {key_, static_cast<std::uint32_t>(memory_.size()),
                reinterpret_cast<std::uint64_t>(memory_.data())};
    }
    /// Asks the kernel, which holds the shard that made it: at once there is no other way.
    void drop() noexcept override;
    domain& of() const noexcept { return domain_; }
    bool valid() const noexcept override { return standing_; }
    std::uint32_t next_key() noexcept override
    {
        return over_ != nullptr ? ::ibv_inc_rkey(window_->rkey) : 0;
    }
    /// What a grant leaves to whoever asks the kernel to take its region away.
    struct left_behind {
        ibv_mr* region = nullptr; ///< or nothing
        verbs::memory_owner keep; ///< goes after it
    };
    /// As drop(), on the shard that made it, but for its region.
    left_behind leave() noexcept;
    /// Renewable by queue pairs of `d` on the device of `p`: they may be of another shard than the one that made it.
    bool is_renewable_in(const domain& d, const domain_part& p) const noexcept;

private:
    friend class domain;
    friend class queue_pair;
    void revoke() noexcept;
    void deliver() noexcept override;

    domain& domain_;
    verbs::memory_owner keep_;
    std::span<std::byte> memory_;
    // Read by whoever holds the grant, on any shard.
    std::atomic<std::uint32_t> key_{0};
    std::atomic<bool> standing_{false};
    domain_part* part_ = nullptr;
    ibv_mw* window_ = nullptr;
    ibv_mr* over_ = nullptr;      // of a renewable one: what binds name
    unsigned rights_ = 0;         // and the device's rights
    queue_pair* scope_ = nullptr; // that the window is bound to, while it lives
    ibv_mr* region_ = nullptr;
};

/// Waits for queue pairs of a domain to be over, on their shard.
class pairs_watch : public list_hook {
public:
    /// One of them is. It may unlink itself.
    virtual void on_pair_over() noexcept = 0;

protected:
    ~pairs_watch() = default;
};

/// What one shard has of a whole_domain.
class domain {
public:
    domain(context_impl& c, whole_domain& all) noexcept;
    domain(const domain&) = delete;
    ~domain();

    task<result<std::unique_ptr<verbs::region>>> register_memory(std::span<std::byte> memory);
    task<result<void>> add_pool(buffer_pool& pool);
    bool is_registered(std::span<const std::byte> memory) const noexcept;
    task<result<void>> make_grants(std::span<verbs::grant_request> batch);
    task<void> revoke(std::span<verbs::grant> batch);
    task<result<std::unique_ptr<verbs::shared_receive_queue>>>
    make_shared_receive_queue(const verbs::shared_receive_queue_options& o);
    whole_domain& whole() const noexcept { return all_; }
    /// Of this shard's. Others look under whole_domain::memory_lock().
    const registered_memory* find(std::span<const std::byte> memory) const noexcept;
    const registered_memory* by_key(std::uint32_t local_key) const noexcept;
    /// How the device knows `r`; nullptr: it does not.
    ibv_mr* known_on(const registered_memory& r, ibv_context* verbs) const noexcept;

    context_impl& owner() const noexcept { return context_; }
    /// The part on `d`, made now if it has to be.
    task<result<std::size_t>> part_on(device& d);
    domain_part& part(std::size_t number) noexcept { return *parts_[number]; }
    const std::vector<std::unique_ptr<domain_part>>& parts() const noexcept { return parts_; }
    /// The device's key for `s`; false if it lies in no memory of the domain, or not in that of its key.
    bool find_key(const verbs::segment& s, std::size_t part, std::uint32_t& key) const noexcept;
    /// Whether find_key() finds all of a batch.
    result<void> check_receives(std::span<const verbs::receive_request> batch, std::size_t part) const;
    void watch_pairs(pairs_watch& w) noexcept { watches_.push_back(w); }
    /// One of its queue pairs is closed: its peer reaches nothing any more.
    void note_pair_over() noexcept;
    /// A peer invalidated `key` of the device of `part`.
    void invalidated(std::uint32_t key, std::size_t part) noexcept;

private:
    friend class registered_memory;
    friend class memory_grant;
    class pool_memory;
    class change;
    static void give(verbs::grant_request& to, std::unique_ptr<memory_grant> g) noexcept;
    task<void> begin_change();
    task<result<std::size_t>> any_part();
    /// How the device of `part` knows this memory, whichever shard registered it; nullptr: it does not.
    ibv_mr* region_of(std::span<const std::byte> memory, std::size_t part) const noexcept;
    task<result<void>> more_windows(domain_part& p, std::size_t wanted, ibv_mw_type type);
    task<result<void>> bind_windows(std::span<verbs::grant_request*> batch, queue_pair& scope);
    task<result<void>> make_wide_grants(std::span<verbs::grant_request*> batch, bool renewable);
    task<result<void>> register_grants(std::span<verbs::grant_request*> batch, domain_part& p);
    task<bool> bind_type_1(std::span<verbs::grant_request*> batch, std::size_t number);
    task<bool> unbind_type_1(std::span<memory_grant*> batch, domain_part& p);
    task<void> invalidate(std::span<memory_grant*> batch);
    static task<bool> room_at(queue_pair* const& q, domain_part& p, std::size_t entries);
    int rights_of_memory(const domain_part& p) const noexcept;

    context_impl& context_;
    whole_domain& all_;
    const std::uint32_t number_;
    std::vector<std::unique_ptr<domain_part>> parts_;
    // Parts and regions are changed by one task at a time, since pool threads look at them meanwhile.
    bool changing_ = false;
    event changed_;
    std::map<const std::byte*, registered_memory*> by_address_; // several may begin alike: the last is found
    std::vector<registered_memory*> by_id_;                     // number id - 1
    std::vector<std::unique_ptr<pool_memory>> pools_;
    intrusive_list<pairs_watch> watches_;
};

/// As errno says, with the cure where there is one.
error registration_error(int code, std::size_t bytes) noexcept;

} // namespace verbena::rdma
