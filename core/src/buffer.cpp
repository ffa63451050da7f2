// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/buffer.hpp>

#include <bit>
#include <cassert>
#include <sys/mman.h>

namespace verbena {

void lease::reset() noexcept
{
    detail::buffer_block* block = std::exchange(block_, nullptr);
    if (block != nullptr && block->references.fetch_sub(1, std::memory_order_acq_rel) == 1)
        block->pool->give_home(block);
}

void detail::buffer_block::deliver() noexcept { pool->put_back(this); }

buffer_pool::buffer_pool(memory_budget& budget, reactor* shard) : budget_(budget), shard_(shard) {}

buffer_pool::~buffer_pool()
{
    assert(outstanding_ == 0 && "a lease outlives its pool");
    trim(~std::size_t(0));
}

unsigned buffer_pool::class_of(std::size_t size) noexcept
{
    if (size <= min_size)
        return 0;
    return static_cast<unsigned>(std::bit_width(size - 1)) -
           static_cast<unsigned>(std::bit_width(min_size - 1));
}

lease buffer_pool::try_acquire(std::size_t size)
{
    if (size > max_size)
        return {};
    const unsigned index = class_of(size);
    detail::buffer_block* block = free_[index];
    if (block != nullptr) {
        free_[index] = block->next_free;
        kept_ -= block->size;
    } else {
        const std::size_t bytes = min_size << index;
        if (!budget_.reserve(bytes) && !(trim(bytes) && budget_.reserve(bytes)))
            return {};
        void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            budget_.release(bytes);
            return {};
        }
        if (!announce({static_cast<std::byte*>(memory), bytes})) {
            ::munmap(memory, bytes);
            budget_.release(bytes);
            return {};
        }
        block = new detail::buffer_block;
        blocks_.push_back(*block);
        block->pool = this;
        block->data = static_cast<std::byte*>(memory);
        block->size = static_cast<std::uint32_t>(bytes);
        block->size_class = index;
    }
    block->references.store(1, std::memory_order_relaxed);
    ++outstanding_;
    return lease(block);
}

void buffer_pool::give_home(detail::buffer_block* block) noexcept
{
    if (shard_ == nullptr || reactor::current() == shard_ || std::this_thread::get_id() == owner_)
        put_back(block);
    else
        shard_->post_remote(*block);
}

void buffer_pool::put_back(detail::buffer_block* block) noexcept
{
    --outstanding_;
    if (kept_ + block->size > max_kept) {
        destroy(block);
    } else {
        block->next_free = free_[block->size_class];
        free_[block->size_class] = block;
        kept_ += block->size;
    }
    if (!waiters_.empty())
        serve_waiters();
}

// Every observer takes it, or none.
bool buffer_pool::announce(std::span<std::byte> memory) noexcept
{
    for (buffer_pool_observer* o = observers_.front(); o != nullptr; o = observers_.next(*o)) {
        if (o->on_added(memory))
            continue;
        for (buffer_pool_observer* told = observers_.front(); told != o; told = observers_.next(*told))
            told->on_removed(memory);
        return false;
    }
    return true;
}

bool buffer_pool::observe(buffer_pool_observer& o) noexcept
{
    for (detail::buffer_block* b = blocks_.front(); b != nullptr; b = blocks_.next(*b)) {
        if (o.on_added({b->data, b->size}))
            continue;
        for (detail::buffer_block* told = blocks_.front(); told != b; told = blocks_.next(*told))
            o.on_removed({told->data, told->size});
        return false;
    }
    observers_.push_back(o);
    return true;
}

void buffer_pool::destroy(detail::buffer_block* block) noexcept
{
    for (buffer_pool_observer* o = observers_.front(); o != nullptr; o = observers_.next(*o))
        o->on_removed({block->data, block->size});
    ::munmap(block->data, block->size);
    budget_.release(block->size);
    delete block;
}

// Gives free buffers back, largest first, until `wanted` bytes are free in the budget.
bool buffer_pool::trim(std::size_t wanted) noexcept
{
    std::size_t freed = 0;
    for (unsigned i = classes; i-- > 0 && freed < wanted;) {
        while (free_[i] != nullptr && freed < wanted) {
            detail::buffer_block* block = free_[i];
            free_[i] = block->next_free;
            kept_ -= block->size;
            freed += block->size;
            destroy(block);
        }
    }
    return freed != 0;
}

void buffer_pool::serve_waiters() noexcept
{
    while (auto* w = static_cast<sized_waiter*>(waiters_.front())) {
        w->granted = try_acquire(w->size);
        if (!w->granted)
            return;
        w->wake();
    }
}

void buffer_pool::note_wait()
{
    ++waits_;
    if (shard_ != nullptr && !retry_.is_armed())
        shard_->timers().arm(retry_, shard_->clock().now() + std::chrono::milliseconds(1));
}

void buffer_pool::retry::on_timer() noexcept
{
    pool_.serve_waiters();
    if (!pool_.waiters_.empty())
        pool_.shard_->timers().arm(*this, pool_.shard_->clock().now() + std::chrono::milliseconds(1));
}

} // namespace verbena
