// SPDX-License-Identifier: Apache-2.0
// Steering tags, for providers that place in software: what a peer may touch, and the table that every
// tagged byte is checked against before it is read or placed.
#pragma once

#include "quiescence.hpp"

#include <verbena/core/verbs/verbs.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

namespace verbena::steering {

class record;
class table;

/// Names a queue pair for as long as the process lives; 0 names none. Not its address, which the next
/// queue pair may have: a grant that outlives its queue pair must not serve another.
using scope_id = std::uint64_t;
scope_id new_scope() noexcept;

/// A domain, as the table knows it: whose tags they are, and who hears of them.
class tag_owner {
public:
    /// A tag works, once more. On the shard that made or bound it.
    virtual void on_bound(const record& /*r*/) noexcept {}
    /// Its tag works no more. On the shard that took it away.
    virtual void on_unbound(const record& /*r*/) noexcept {}
    /// Whether peers of connections that are not of the shard of `here` (nullptr: of none) can be touching memory by tags that any
    /// connection of this domain may use.
    virtual bool is_used_beside(const lane* here) const noexcept = 0;

protected:
    ~tag_owner() = default;
};

/// Hears that no access to a store is under way any more.
class use_waiter {
public:
    /// On the shard of the last access; the slot is the waiter's again.
    virtual void unused() noexcept = 0;

protected:
    ~use_waiter() = default;
};

/// One grant's slot. Its tag is random over all 32 bits and never reused while it stands; a new grant of
/// the same memory gets another one, which is what a generation is for.
///
/// A peer's access reads it on any shard while its owner may take the tag away. So what is read is atomic, and counts if the
/// tag is the same before and behind.
///
/// A grant of a store has no memory. An access to it may suspend, so it leaves the section in which its tag was found: such
/// accesses are counted, and the slot is free when there is none.
class record final : public verbs::grant_slot, private passing, private use_waiter {
public:
    verbs::remote_segment where() const noexcept override;
    bool valid() const noexcept override { return tag() != 0; }
    std::uint32_t next_key() noexcept override;
    void drop() noexcept override;

    std::uint32_t tag() const noexcept { return tag_.load(std::memory_order_acquire); }
    /// Of `owner`, and renewable.
    bool is_renewable_of(const tag_owner& owner) const noexcept
    {
        return renewable_ && this->owner() == &owner;
    }
    /// The next key works, at once, and the last one no more.
    void bind() noexcept;
    /// There is no key until bind().
    void unbind() noexcept;
    /// unbind(), and there is none ever after.
    void retire() noexcept;
    /// Of one queue pair alone.
    bool is_scoped() const noexcept { return scope_.load(std::memory_order_relaxed) != 0; }
    /// Whether another shard than that of `here` (nullptr: none) can be touching its memory for a peer.
    bool is_used_beside(const lane* here) const noexcept
    {
        return is_scoped() ? used_at_ != nullptr && !used_at_->is_beside(here)
                           : owner()->is_used_beside(here);
    }
    std::size_t size() const noexcept { return size_.load(std::memory_order_relaxed); }
    verbs::access rights() const noexcept { return rights_.load(std::memory_order_relaxed); }
    tag_owner* owner() const noexcept { return owner_.load(std::memory_order_relaxed); }
    /// nullptr: it is of memory. Of who has the grant, or within the section in which check() found it, or an access.
    verbs::byte_store* store() const noexcept { return store_.get(); }
    /// An access to the store begins. Within the section in which check() found it.
    void begin_use() noexcept { uses_.fetch_add(1, std::memory_order_relaxed); }
    /// It is over. On any shard; the slot may be somebody else's when this returns.
    void end_use() noexcept;
    /// A write to the store goes on though its connection has ended: what others write by the grant waits for its end. Any shard.
    void begin_abandoned() noexcept { abandoned_.fetch_add(1, std::memory_order_relaxed); }
    void end_abandoned() noexcept { abandoned_.fetch_sub(1, std::memory_order_release); }
    bool has_abandoned() const noexcept { return abandoned_.load(std::memory_order_acquire) != 0; }
    /// No shard finds its tag any more. True: no access is under way; else w.unused() follows.
    bool waits_for_no_use(use_waiter& w) noexcept;

private:
    friend class table;
    static constexpr std::uint32_t awaited = 0x80000000; // of uses_: who ends the last one tells waiter_
    void passed() noexcept override; // dropped, and touched no more, but by accesses to a store
    void unused() noexcept override;

    table* table_ = nullptr; // for ever, once it was made
    std::atomic<std::uint32_t> tag_{0};
    std::uint32_t next_ = 0; // in the table already, so that nobody else gets it, and good for nothing
    std::uint32_t index_ = 0;
    bool renewable_ = false;
    bool is_counted_ = false;
    std::atomic<verbs::access> rights_{};
    std::atomic<std::uint32_t> size_{0};
    std::atomic<tag_owner*> owner_{nullptr};
    std::atomic<std::byte*> memory_{nullptr};
    std::atomic<std::uint64_t> base_{0};
    std::atomic<scope_id> scope_{0};
    const lane* used_at_ = nullptr;
    verbs::memory_owner keep_;
    std::shared_ptr<verbs::byte_store> store_;
    std::atomic<std::uint32_t> uses_{0};
    std::atomic<std::uint32_t> abandoned_{0}; // of uses_
    use_waiter* waiter_ = nullptr;            // if `awaited` is set
    record* next_free_ = nullptr;
};

enum class fault : std::uint8_t {
    none,
    invalid_tag,
    not_associated, ///< another domain's or another queue pair's
    access,
    wrap,
    bounds,
};

/// What a check found: memory to touch, or a store, or the rule that was broken.
struct finding {
    std::byte* address = nullptr;
    steering::fault fault = fault::none;
    const char* rule = nullptr; ///< nullptr: granted
    record* store = nullptr;    ///< if granted: its store, at the very offset that was checked, and no memory
};

/// What a shard has at hand of a table: slots and random numbers. On that shard.
class magazine {
private:
    friend class table;
    record* free_ = nullptr;
    std::size_t count_ = 0;
    std::array<std::uint32_t, 64> entropy_{};
    std::size_t entropy_left_ = 0;
};

/// What a new slot is for.
struct tag_terms {
    tag_owner& owner;
    verbs::grant_request& request; ///< of which `keep` goes to the slot
    std::uint64_t base = 0; ///< the tagged offset that names the first byte; of a store: that in the store
    scope_id scope = 0;
    const lane* used_at = nullptr; ///< of a scope: its shard; nullptr: all are of one thread
};

/// All tags of a device, and the slots of its grants.
///
/// A tag names a line of 8 entries by its lower bits, and stands in any of them; where all are taken another tag is drawn, which is
/// what they are random for. So to find one reads a line, and takes no lock. Where lines run out a larger level of
/// them is added beside: entries never move, so that who looks needs no help of who adds. Slots are made in batches and used again.
class table {
public:
    /// `seed` 0: tags from the kernel's random pool, so that nobody can guess one. Else they repeat, and the table is of one thread.
    explicit table(quiescence& shards, std::uint64_t seed = 0);
    ~table();
    table(const table&) = delete;

    /// A slot with a tag that works; nullptr: there is no memory for it, or max_records are in use. Any thread; `at`: what the
    /// calling shard has, if anything.
    record* make(const tag_terms& terms, magazine* at) noexcept;
    /// A grant for each request of `batch`, of the terms that `terms_of` gives for it; or none. Errors: ENOMEM. As make().
    template<class Terms>
    result<void> make_all(std::span<verbs::grant_request> batch, magazine* at, const Terms& terms_of)
    {
        for (auto& r : batch) {
            record* const made = make(terms_of(r), at);
            if (made == nullptr) {
                for (auto& before : batch)
                    before.made = verbs::grant();
                return error(std::errc::not_enough_memory, "memory for a grant, or too many of them",
                             batch.size());
            }
            r.made = verbs::grant(*made);
        }
        return {};
    }
    /// It was retired, and nobody can be touching its memory any more. As make().
    void free(record& r, magazine* at) noexcept;
    /// What a shard had at hand is anybody's again.
    void give_back(magazine& m) noexcept;
    /// A random tag that is in no use; for the sinks of our own Reads, which no peer may write by itself.
    std::uint32_t fresh_tag(magazine& at) noexcept;
    /// May the peer of `scope` touch `size` bytes at `offset`? Within a section of the shard, as long as the address is used.
    finding check(std::uint32_t tag, std::uint64_t offset, std::uint64_t size, verbs::access want,
                  const tag_owner& domain, scope_id scope) const noexcept;
    /// Whether `tag` works for anybody.
    bool stands(std::uint32_t tag) const noexcept { return find(tag) != nullptr; }
    /// Invalidates for `scope`'s queue pair, or for its peer; false if it may not.
    bool invalidate(std::uint32_t tag, const tag_owner& domain, scope_id scope) noexcept;
    /// Slots in use, of those that were made without a magazine.
    std::size_t size() const noexcept { return used_.load(std::memory_order_relaxed); }
    quiescence& shards() noexcept { return shards_; }

    /// Grants at one time.
    static constexpr std::uint32_t max_records = (1U << 22) - 64;

private:
    friend class record;
    static constexpr std::size_t entries = 8;
    static constexpr std::size_t first_lines = 64;
    static constexpr std::size_t max_levels = 15; // the last alone has room for twice max_records
    // Slots are made in batches, each as large as all before it.
    static constexpr std::size_t first_batch = 64;
    static constexpr std::size_t max_batches = 16;
    static_assert(first_batch * ((std::size_t(1) << max_batches) - 1) == max_records);
    static constexpr std::size_t most_at_hand = 64; // of a magazine
    // Tag and index of the slot; 0: none.
    struct alignas(64) line {
        std::array<std::atomic<std::uint64_t>, entries> entry{};
    };
    static constexpr std::size_t lines_of(std::size_t level) noexcept { return first_lines << level; }
    line& line_of(std::size_t level, std::uint32_t tag) const noexcept
    {
        return levels_[level][tag & (lines_of(level) - 1)];
    }
    record& at(std::uint32_t index) const noexcept;

    std::uint32_t insert(record& r, magazine* at) noexcept;
    bool place(std::uint32_t tag, std::uint32_t index, std::size_t level) noexcept;
    std::size_t count(std::uint32_t tag) const noexcept;
    void erase(std::uint32_t tag, std::uint32_t index) noexcept;
    record* find(std::uint32_t tag) const noexcept;
    bool add_level(std::size_t after) noexcept;
    std::uint32_t random(magazine* at) noexcept;
    record* take_free(magazine* at) noexcept;
    bool add_batch() noexcept;

    quiescence& shards_;
    std::atomic<std::size_t> level_count_{0};
    std::array<std::unique_ptr<line[]>, max_levels> levels_; // those below level_count_ don't change
    // Written before an index into it is given out.
    std::array<std::unique_ptr<record[]>, max_batches> batches_;
    std::atomic<std::size_t> used_{0};

    std::mutex lock_; // for what follows
    std::size_t batch_count_ = 0;
    record* free_ = nullptr;
    std::uint64_t seed_;
    magazine spare_; // of those who have none: its random numbers
};

/// Waits until no access to a store by any of these grants is under way. Their tags are gone, and no shard finds them any more.
///
/// Completes when: that is so; without suspending where there is none. On cancel: it waits on. Errors: none. Lifetime: the grants outlive
/// the task. Shard: any.
task<void> until_unused(std::span<const verbs::grant> batch);

} // namespace verbena::steering
