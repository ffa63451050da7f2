// SPDX-License-Identifier: Apache-2.0
#include "store_access.hpp"

#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <new>
#include <utility>

namespace verbena::steering {
namespace {

// How often who waits for what an ended connection has left to a disk looks for it.
constexpr duration first_look = std::chrono::milliseconds(1);
constexpr duration most_pause = std::chrono::milliseconds(64);

} // namespace

store_access::pointer store_access::make(reactor& shard, store_user& user) noexcept
{
    return pointer(new (std::nothrow) store_access(shard, user));
}

void store_access::leave() noexcept
{
    user_ = nullptr;
    abandon();
    if (is_busy() && !has_begun_) {
        deferred::unlink();
        end();
    }
    if (!is_busy())
        delete this;
}

void store_access::abandon() noexcept
{
    if (!is_busy() || std::exchange(is_abandoned_, true))
        return;
    if (writes_)
        record_->begin_abandoned();
    work_.request_stop();
}

void store_access::begin(record& r, bool writes, std::uint64_t offset, std::size_t size) noexcept
{
    record_ = &r;
    r.begin_use();
    writes_ = writes;
    offset_ = offset;
    part_ = size;
    progress_ = store_progress::under_way;
    has_begun_ = has_waited_ = false;
    shard_.post_last(*this); // one in a turn: what a peer asks for by a few octets costs a call
}

void store_access::start() noexcept
{
    has_begun_ = true;
    try {
        work_.spawn(&store_access::work, this);
    } catch (...) { // no memory for the task's runner
        progress_ = store_progress::lost;
    }
    // The scope catches it where there is no memory for the task itself.
    if (progress_ == store_progress::under_way && work_.live() == 0)
        progress_ = store_progress::lost;
    has_waited_ = progress_ == store_progress::under_way;
}

task<void> store_access::work()
{
    store_progress how = store_progress::lost;
    try {
        bool goes_on = true;
        for (duration pause = first_look; goes_on && record_->has_abandoned();
             pause = std::min(2 * pause, most_pause))
            goes_on = co_await sleep_for(pause);
        if (goes_on) {
            verbs::byte_store& store = *record_->store();
            const std::span<std::byte> bytes = buffer_.bytes().first(part_);
            task<result<void>> access = writes_ ? store.write(offset_, bytes) : store.read(offset_, bytes);
            const auto done = co_await access;
            how = done ? store_progress::done : store_progress::failed;
        }
    } catch (...) { // as `lost` says
    }
    progress_ = how;
    if (has_waited_)
        shard_.post(*this); // when this task's frame is gone
}

// Whoever has revoked the grant may let the shard's memory go when the slot is in use no more.
void store_access::end() noexcept
{
    if (writes_ || user_ == nullptr)
        buffer_.reset();
    if (is_abandoned_ && writes_)
        record_->end_abandoned();
    std::exchange(record_, nullptr)->end_use();
}

void store_access::run() noexcept
{
    if (!has_begun_) {
        start();
        if (progress_ == store_progress::under_way) {
            user_->access_waits();
            return;
        }
    }
    store_user* const user = user_;
    end();
    if (user == nullptr)
        delete this;
    else
        user->access_over(progress_); // it may delete this
}

} // namespace verbena::steering
