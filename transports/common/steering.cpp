// SPDX-License-Identifier: Apache-2.0
#include "steering.hpp"

#include "random.hpp"

#include <verbena/core/task/event.hpp>

#include <atomic>
#include <bit>
#include <cerrno>
#include <new>
#include <random>
#include <sys/random.h>
#include <utility>

namespace verbena::steering {

scope_id new_scope() noexcept
{
    static std::atomic<scope_id> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// --- record ---

verbs::remote_segment record::where() const noexcept
{
    return {tag(), static_cast<std::uint32_t>(size()), base_.load(std::memory_order_relaxed)};
}

std::uint32_t record::next_key() noexcept
{
    if (renewable_ && next_ == 0)
        next_ = table_->insert(*this, nullptr); // 0 where there is no memory: then none can be posted
    return next_;
}

void record::bind() noexcept
{
    if (next_key() == 0)
        return;
    unbind();
    tag_.store(std::exchange(next_, 0), std::memory_order_release);
    owner()->on_bound(*this);
}

// The peer may be about to do the same, by a Send with Invalidate: one of the two takes the tag.
void record::unbind() noexcept
{
    const std::uint32_t tag = tag_.exchange(0, std::memory_order_seq_cst);
    if (tag != 0) {
        table_->erase(tag, index_);
        owner()->on_unbound(*this);
    } else if (is_scoped()) {
        return; // whoever took it did so on the only shard that has to do with it
    }
    // What was taken elsewhere may still be owed here.
    table_->shards_.settle_here();
}

void record::retire() noexcept
{
    if (next_ != 0)
        table_->erase(std::exchange(next_, 0), index_);
    renewable_ = false;
    unbind();
}

void record::drop() noexcept
{
    retire();
    quiescence& shards = table_->shards_;
    const lane* const here = shards.here();
    const std::uint64_t epoch = is_used_beside(here) ? shards.begin(here) : 0;
    if (epoch == 0)
        passed();
    else
        shards.wait_anywhere(epoch, *this);
}

void record::passed() noexcept
{
    if (waits_for_no_use(*this))
        unused();
}

void record::unused() noexcept { table_->free(*this, nullptr); }

bool record::waits_for_no_use(use_waiter& w) noexcept
{
    if (store_ == nullptr)
        return true;
    waiter_ = &w;
    return uses_.fetch_or(awaited, std::memory_order_acq_rel) == 0;
}

void record::end_use() noexcept
{
    if (uses_.fetch_sub(1, std::memory_order_acq_rel) == (awaited | 1))
        waiter_->unused();
}

namespace {

// A task that waits, on its shard.
class awaited_use final : public use_waiter, private remote_message {
public:
    explicit awaited_use(reactor& home) noexcept : home_(home) {}
    void unused() noexcept override { home_.post_remote(*this); }
    event done;

private:
    void deliver() noexcept override { done.set(); }
    reactor& home_;
};

} // namespace

task<void> until_unused(std::span<const verbs::grant> batch)
{
    const task_context& context = co_await current_context();
    for (const auto& g : batch) {
        auto* const r = static_cast<record*>(g.slot());
        if (r == nullptr || r->store() == nullptr)
            continue;
        awaited_use last(*context.shard);
        if (!r->waits_for_no_use(last))
            co_await last.done.wait_shielded();
    }
}

// --- table ---

table::table(quiescence& shards, std::uint64_t seed) : shards_(shards), seed_(seed)
{
    levels_[0] = std::make_unique<line[]>(lines_of(0));
    level_count_.store(1, std::memory_order_release);
}

table::~table() = default;

record& table::at(std::uint32_t index) const noexcept
{
    const auto number = static_cast<std::size_t>(std::bit_width(index / first_batch + 1)) - 1;
    return batches_[number][index - first_batch * ((std::size_t(1) << number) - 1)];
}

std::uint32_t table::random(magazine* at) noexcept
{
    std::unique_lock<std::mutex> held(lock_, std::defer_lock);
    if (at == nullptr || seed_ != 0)
        held.lock();
    if (seed_ != 0)
        return static_cast<std::uint32_t>(next_random(seed_));
    magazine& from = at != nullptr ? *at : spare_;
    if (from.entropy_left_ == 0) {
        std::size_t have = 0;
        while (have < sizeof from.entropy_) {
            const auto n = ::getrandom(reinterpret_cast<char*>(from.entropy_.data()) + have,
                                       sizeof from.entropy_ - have, 0);
            if (n > 0)
                have += static_cast<std::size_t>(n);
            else if (errno != EINTR)
                break;
        }
        if (have < sizeof from.entropy_) { // no getrandom: std::random_device reads the same pool by a file
            std::random_device device;
            for (auto& word : from.entropy_)
                word = device();
        }
        from.entropy_left_ = from.entropy_.size();
    }
    return from.entropy_[--from.entropy_left_];
}

bool table::add_batch() noexcept
{
    if (batch_count_ == max_batches)
        return false;
    const std::size_t size = first_batch << batch_count_;
    auto* const made = new (std::nothrow) record[size];
    if (made == nullptr)
        return false;
    const std::size_t before = size - first_batch;
    for (std::size_t i = size; i > 0; --i) {
        record& r = made[i - 1];
        r.table_ = this;
        r.index_ = static_cast<std::uint32_t>(before + i - 1);
        r.next_free_ = free_;
        free_ = &r;
    }
    batches_[batch_count_++].reset(made);
    return true;
}

record* table::take_free(magazine* at) noexcept
{
    record* r = nullptr;
    if (at != nullptr && at->free_ != nullptr) {
        r = std::exchange(at->free_, at->free_->next_free_);
        --at->count_;
    } else {
        const std::scoped_lock held(lock_);
        if (free_ == nullptr && !add_batch())
            return nullptr;
        r = std::exchange(free_, free_->next_free_);
        // Some more, so that the lock is taken seldom.
        for (std::size_t i = 0; at != nullptr && free_ != nullptr && i < most_at_hand / 2; ++i) {
            record* const more = std::exchange(free_, free_->next_free_);
            more->next_free_ = at->free_;
            at->free_ = more;
            ++at->count_;
        }
    }
    return r;
}

void table::free(record& r, magazine* at) noexcept
{
    verbs::memory_owner keep = std::exchange(r.keep_, {}); // goes last: who owns that memory may do anything
    const std::shared_ptr<verbs::byte_store> store = std::exchange(r.store_, nullptr); // likewise
    if (std::exchange(r.is_counted_, false))
        used_.fetch_sub(1, std::memory_order_relaxed);
    if (at != nullptr && at->count_ < most_at_hand) {
        r.next_free_ = at->free_;
        at->free_ = &r;
        ++at->count_;
    } else {
        const std::scoped_lock held(lock_);
        r.next_free_ = free_;
        free_ = &r;
    }
}

void table::give_back(magazine& m) noexcept
{
    const std::scoped_lock held(lock_);
    while (record* const r = m.free_) {
        m.free_ = r->next_free_;
        r->next_free_ = free_;
        free_ = r;
    }
    m.count_ = 0;
}

record* table::make(const tag_terms& terms, magazine* at) noexcept
{
    record* const r = take_free(at);
    if (r == nullptr)
        return nullptr;
    // Who still looks at what this was before finds another tag when he has seen one of these.
    constexpr auto order = std::memory_order_release;
    const verbs::grant_request& q = terms.request;
    r->owner_.store(&terms.owner, order);
    const bool is_store = q.store != nullptr;
    r->memory_.store(is_store ? nullptr : q.memory.data(), order);
    r->size_.store(is_store ? q.store_length : static_cast<std::uint32_t>(q.memory.size()), order);
    r->uses_.store(0, order);
    r->base_.store(terms.base, order);
    r->rights_.store(q.rights, order);
    r->scope_.store(terms.scope, order);
    r->used_at_ = terms.used_at;
    r->renewable_ = q.renewable;
    r->is_counted_ = at == nullptr;
    if (r->is_counted_)
        used_.fetch_add(1, std::memory_order_relaxed);
    const std::uint32_t tag = insert(*r, at);
    if (tag == 0) {
        free(*r, at);
        return nullptr;
    }
    r->keep_ = std::exchange(terms.request.keep, {});
    r->store_ = std::exchange(terms.request.store, nullptr);
    r->tag_.store(tag, order);
    terms.owner.on_bound(*r);
    return r;
}

bool table::add_level(std::size_t after) noexcept
{
    const std::scoped_lock held(lock_);
    if (level_count_.load(std::memory_order_relaxed) != after)
        return true; // somebody else did
    if (after == max_levels)
        return false;
    levels_[after].reset(new (std::nothrow) line[lines_of(after)]);
    if (levels_[after] == nullptr)
        return false;
    level_count_.store(after + 1, std::memory_order_release);
    return true;
}

bool table::place(std::uint32_t tag, std::uint32_t index, std::size_t level) noexcept
{
    for (auto& e : line_of(level, tag).entry) {
        std::uint64_t none = 0;
        if (e.load(std::memory_order_relaxed) == 0 &&
            e.compare_exchange_strong(none, std::uint64_t(tag) << 32 | (index + 1),
                                      std::memory_order_seq_cst))
            return true;
    }
    return false;
}

std::size_t table::count(std::uint32_t tag) const noexcept
{
    std::size_t n = 0;
    for (std::size_t level = level_count_.load(std::memory_order_acquire); level > 0; --level) {
        for (const auto& e : line_of(level - 1, tag).entry)
            n += e.load(std::memory_order_seq_cst) >> 32 == tag;
    }
    return n;
}

// Yields 0 if there is no memory for more.
std::uint32_t table::insert(record& r, magazine* at) noexcept
{
    constexpr int patience = 4; // full lines, before a larger level is made
    constexpr int limit = 64;
    for (int full = 1;; ++full) {
        std::uint32_t tag = 0;
        while (tag == 0 || count(tag) != 0)
            tag = random(at);
        const std::size_t levels = level_count_.load(std::memory_order_acquire);
        if (place(tag, r.index_, levels - 1)) {
            // Two who drew the same at one time both see it, and draw again.
            if (count(tag) == 1)
                return tag;
            erase(tag, r.index_);
        } else if (full >= patience && !add_level(levels) && full >= limit) {
            return 0;
        }
    }
}

void table::erase(std::uint32_t tag, std::uint32_t index) noexcept
{
    const std::uint64_t wanted = std::uint64_t(tag) << 32 | (index + 1);
    for (std::size_t level = level_count_.load(std::memory_order_acquire); level > 0; --level) {
        for (auto& e : line_of(level - 1, tag).entry) {
            if (e.load(std::memory_order_relaxed) == wanted) {
                e.store(0, std::memory_order_seq_cst);
                return;
            }
        }
    }
}

record* table::find(std::uint32_t tag) const noexcept
{
    if (tag == 0)
        return nullptr;
    for (std::size_t level = level_count_.load(std::memory_order_acquire); level > 0; --level) {
        for (const auto& e : line_of(level - 1, tag).entry) {
            const std::uint64_t found = e.load(std::memory_order_acquire);
            if (found >> 32 != tag)
                continue;
            record& r = at(static_cast<std::uint32_t>(found) - 1);
            // By sequence with lane::is_quiet(): either this sees that it was taken away, or who took it away sees the section.
            if (r.tag_.load(std::memory_order_seq_cst) == tag)
                return &r;
        }
    }
    return nullptr;
}

std::uint32_t table::fresh_tag(magazine& at) noexcept
{
    for (;;) {
        const std::uint32_t tag = random(&at);
        if (tag != 0 && count(tag) == 0)
            return tag;
    }
}

finding table::check(std::uint32_t tag, std::uint64_t offset, std::uint64_t size, verbs::access want,
                     const tag_owner& domain, scope_id scope) const noexcept
{
    constexpr finding invalid{nullptr, fault::invalid_tag, "steering tag is not valid"};
    record* const r = find(tag);
    if (r == nullptr)
        return invalid;
    constexpr auto order = std::memory_order_acquire;
    const tag_owner* const owner = r->owner_.load(order);
    const scope_id limited_to = r->scope_.load(order);
    const verbs::access rights = r->rights_.load(order);
    const std::uint64_t base = r->base_.load(order);
    const std::uint64_t length = r->size_.load(order);
    std::byte* const memory = r->memory_.load(order);
    if (r->tag_.load(std::memory_order_relaxed) != tag) // these were another grant's, perhaps
        return invalid;
    if (owner != &domain || (limited_to != 0 && limited_to != scope))
        return {nullptr, fault::not_associated, "steering tag belongs to another connection"};
    if (!verbs::allows(rights, want))
        return {nullptr, fault::access, "steering tag does not allow this access"};
    if (offset > ~size)
        return {nullptr, fault::wrap, "tagged offset wraps"};
    if (offset < base || offset - base > length || size > length - (offset - base))
        return {nullptr, fault::bounds, "range lies outside the steering tag's memory"};
    if (memory == nullptr) [[unlikely]]
        return {nullptr, fault::none, nullptr, r->store() != nullptr ? r : nullptr};
    return {memory + (offset - base), fault::none, nullptr};
}

bool table::invalidate(std::uint32_t tag, const tag_owner& domain, scope_id scope) noexcept
{
    record* const r = find(tag);
    if (r == nullptr)
        return false;
    tag_owner* const owner = r->owner_.load(std::memory_order_acquire);
    const scope_id limited_to = r->scope_.load(std::memory_order_acquire);
    if (owner != &domain || (limited_to != 0 && limited_to != scope))
        return false;
    std::uint32_t expected = tag;
    if (!r->tag_.compare_exchange_strong(expected, 0, std::memory_order_seq_cst))
        return false;
    erase(tag, r->index_);
    owner->on_unbound(*r);
    shards_.settle_here();
    return true;
}

} // namespace verbena::steering
