// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/storage/sync_group.hpp>

#include <cerrno>
#include <unistd.h>

namespace verbena::storage {

void sync_group::join(awaiter& a) noexcept
{
    {
        std::lock_guard lock(mutex_);
        for (awaiter* leader = running_; leader != nullptr; leader = leader->next_) {
            if (!leader->same_round(a))
                continue;
            if (leader->waiting_last_ != nullptr)
                leader->waiting_last_->next_ = &a;
            else
                leader->waiting_first_ = &a;
            leader->waiting_last_ = &a;
            return;
        }
        a.next_ = running_;
        running_ = &a;
    }
    pool_.submit(a, *a.home_);
}

void sync_group::run(awaiter& leader) noexcept
{
    awaiter* batch;
    {
        std::lock_guard lock(mutex_);
        batch = leader.waiting_first_;
        leader.waiting_first_ = leader.waiting_last_ = nullptr;
    }
    int failed;
    if (leader.whole_filesystem()) {
        failed = sync_metadata(leader, batch);
    } else {
        bool data_only = leader.kind_ == what::data;
        for (const awaiter* a = batch; a != nullptr; a = a->next_)
            data_only = data_only && a->kind_ == what::data;
        failed = sync_one(leader, data_only);
    }
    rounds_.fetch_add(1, std::memory_order_relaxed);
    if (failed != 0)
        failures_.fetch_add(1, std::memory_order_relaxed);

    awaiter* successor;
    {
        std::lock_guard lock(mutex_);
        awaiter** at = &running_;
        while (*at != &leader)
            at = &(*at)->next_;
        *at = leader.next_;
        successor = leader.waiting_first_;
        if (successor != nullptr) {
            successor->waiting_first_ = successor->next_;
            successor->waiting_last_ = successor->next_ != nullptr ? leader.waiting_last_ : nullptr;
            successor->next_ = running_;
            running_ = successor;
        }
    }
    if (successor != nullptr)
        pool_.submit(*successor, *successor->home_);
    while (batch != nullptr) {
        awaiter* a = batch;
        batch = a->next_;
        a->error_ = failed;
        a->home_->post_remote(*a); // its frame may be gone after this
    }
    leader.error_ = failed;
}

int sync_group::sync_one(const awaiter& leader, bool data_only) noexcept
{
    int failed;
    do
        failed = (data_only ? ::fdatasync(leader.fd_) : ::fsync(leader.fd_)) == 0 ? 0 : errno;
    while (failed == EINTR); // nothing is lost then
    return failed;
}

int sync_group::sync_metadata(const awaiter& leader, const awaiter* batch) noexcept
{
    // Distinct inodes, the leader's first.
    std::array<const awaiter*, max_distinct> distinct;
    std::size_t count = 0;
    if (leader.device_ == no_device) {
        ::sync();
        return 0;
    }
    bool everything = leader.kind_ == what::filesystem;
    distinct[count++] = &leader;
    for (const awaiter* a = batch; a != nullptr && !everything; a = a->next_) {
        everything = a->kind_ == what::filesystem;
        bool known = false;
        for (std::size_t i = 0; i < count && !known; ++i)
            known = distinct[i]->inode_ == a->inode_;
        if (known)
            continue;
        if (count == max_distinct)
            everything = true;
        else
            distinct[count++] = a;
    }
    if (everything || (count > max_single_syncs && little_is_dirty()))
        return ::syncfs(leader.fd_) == 0 ? 0 : errno;
    int failed = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (::fsync(distinct[i]->fd_) != 0)
            failed = errno;
    }
    return failed;
}

bool sync_group::little_is_dirty() noexcept
{
    // Only rounds ask, but those of different file systems run side by side.
    std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (now - dirty_since_ > writeback_time) {
        dirty_since_ = now;
        dirty_.store(0, std::memory_order_relaxed);
    }
    return dirty_.load(std::memory_order_relaxed) <= max_dirty_for_syncfs;
}

} // namespace verbena::storage
