// SPDX-License-Identifier: Apache-2.0
#include "store_access.hpp"

#include <new>
#include <utility>

namespace verbena::steering {

store_access::pointer store_access::make(reactor& shard, store_user& user, std::size_t size) noexcept
{
    std::unique_ptr<std::byte[]> buffer(new (std::nothrow) std::byte[size]);
    if (buffer == nullptr)
        return nullptr;
    return pointer(new (std::nothrow) store_access(shard, user, std::move(buffer), size));
}

void store_access::leave() noexcept
{
    user_ = nullptr;
    if (!is_busy())
        delete this;
}

store_progress store_access::read(record& r, std::uint64_t offset, std::size_t size) noexcept
{
    return begin(r, false, offset, size);
}

store_progress store_access::write(record& r, std::uint64_t offset, std::size_t size) noexcept
{
    return begin(r, true, offset, size);
}

store_progress store_access::begin(record& r, bool writes, std::uint64_t offset, std::size_t size) noexcept
{
    record_ = &r;
    r.begin_use();
    progress_ = store_progress::under_way;
    is_beginning_ = true;
    try {
        work_.spawn(&store_access::work, this, writes, offset, size);
    } catch (...) { // no memory for the task
        progress_ = store_progress::lost;
    }
    is_beginning_ = false;
    if (progress_ != store_progress::under_way)
        end();
    return progress_;
}

task<void> store_access::work(bool writes, std::uint64_t offset, std::size_t size)
{
    store_progress how = store_progress::lost;
    try {
        verbs::byte_store& store = *record_->store();
        const std::span<std::byte> bytes(buffer_.get(), size);
        task<result<void>> access = writes ? store.write(offset, bytes) : store.read(offset, bytes);
        const auto done = co_await access;
        how = done ? store_progress::done : store_progress::failed;
    } catch (...) { // as `lost` says
    }
    progress_ = how;
    if (!is_beginning_)
        shard_.post(*this); // when this task's frame is gone
}

void store_access::end() noexcept { std::exchange(record_, nullptr)->end_use(); }

void store_access::run() noexcept
{
    store_user* const user = user_;
    end();
    if (user == nullptr)
        delete this;
    else
        user->access_over(progress_); // it may delete this
}

} // namespace verbena::steering
