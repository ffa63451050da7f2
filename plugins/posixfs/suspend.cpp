// SPDX-License-Identifier: Apache-2.0
// Letting go of the file system, and coming back to it: the steps of storage::suspension (docs/internals/posixfs.md, "Suspended").
//
// What may wait for a disk is a job of the lane that has all it needs itself: if it hangs, it outlives the back end.
#include "backend.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <functional>
#include <new>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
#include <utility>

namespace verbena::posixfs {

namespace {

constexpr std::size_t most_names = 5;

/// Deletes itself.
class step_job final : public blocking_pool::job {
public:
    struct outcome {
        std::atomic<bool> is_there{false};
        std::string text;
    };
    step_job(std::shared_ptr<outcome> to, std::function<std::string()> work)
        : to_(std::move(to)), work_(std::move(work))
    {
    }
    ~step_job() = default;
    void execute() noexcept override
    {
        try {
            to_->text = work_();
        } catch (const std::exception& e) {
            to_->text.assign("no memory"); // short enough to need none
        }
        work_ = nullptr; // closes what it had open
        to_->is_there.store(true, std::memory_order_release);
        delete this;
    }
    void deliver() noexcept override {}

private:
    const std::shared_ptr<outcome> to_;
    std::function<std::string()> work_;
};

storage::suspension_step on_lane(blocking_pool& lane, std::function<std::string()> work)
{
    auto told = std::make_shared<step_job::outcome>();
    auto made = std::make_unique<step_job>(told, std::move(work));
    if (!lane.submit(*made))
        return storage::ended_step("this program is about to stop");
    std::ignore = made.release();
    return [told]() -> std::optional<std::string> {
        if (!told->is_there.load(std::memory_order_acquire))
            return std::nullopt;
        return told->text;
    };
}

// What /proc/self/fd shows.
std::string name_of(int fd)
{
    char text[4096];
    const ssize_t n = ::readlink(fd_path(fd).text(), text, sizeof(text));
    std::string name(text, n > 0 ? std::size_t(n) : 0);
    if (constexpr std::string_view gone = " (deleted)"; name.ends_with(gone))
        name.resize(name.size() - gone.size());
    return name;
}

/// The first of several, and how many more there are.
class name_list {
public:
    void add(std::string text)
    {
        if (count_++ < most_names)
            text_ += (text_.empty() ? "" : ", ") + std::move(text);
    }
    bool empty() const noexcept { return count_ == 0; }
    std::size_t count() const noexcept { return count_; }
    std::string text() const
    {
        return count_ <= most_names ? text_ : text_ + " and " + std::to_string(count_ - most_names) + " more";
    }

private:
    std::string text_;
    std::size_t count_ = 0;
};

std::string tell_nameless(const std::vector<pin_table::kept_file>& all)
{
    name_list names;
    for (const auto& file : all) {
        struct stat st{};
        if (file_status(file.fd->get(), st) != 0 || st.st_nlink != 0)
            continue;
        names.add(name_of(file.fd->get()) + " (file " + std::to_string(st.st_ino) +
                  (file.client.empty() ? ")" : ", open by " + file.client + ")"));
    }
    if (names.empty())
        return {};
    return "files without a name are open, which would be gone with their last descriptor: " + names.text() +
           ". Have their clients close them";
}

std::string tell_still_open(const std::vector<std::uint64_t>& mounts, const std::string& root)
{
    const std::unique_ptr<DIR, int (*)(DIR*)> list(::opendir("/proc/self/fd"), ::closedir);
    if (!list)
        return "what is open can't be seen: /proc/self/fd: " + std::string(std::strerror(errno));
    const std::string beneath = root == "/" ? root : root + '/';
    name_list names;
    while (const dirent* const one = ::readdir(list.get())) {
        int fd = -1;
        const char* const end = one->d_name + std::strlen(one->d_name);
        struct statx st{};
        if (std::from_chars(one->d_name, end, fd).ptr != end ||
            ::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &st) != 0 ||
            std::ranges::find(mounts, st.stx_mnt_id) == mounts.end())
            continue;
        std::string name = name_of(fd);
        if (name == root || name.starts_with(beneath))
            names.add(std::move(name));
    }
    return names.empty() ? std::string()
                         : "it could not be let go, since this is still open: " + names.text();
}

} // namespace

std::optional<std::string> backend::hold()
{
    auto held = watched_->hold();
    if (!held || !held->empty())
        return held;
    try {
        held_mounts_.clear();
        for (const unique_fd& fd : handles_->duplicates())
            held_mounts_.push_back(look_at_open(fd.get(), true).mount);
    } catch (...) {
        release();
        throw;
    }
    return held;
}

storage::suspension_step backend::find_nameless()
{
    auto work = [all = pins_.kept()] { return tell_nameless(all); };
    return on_lane(pool_, std::move(work));
}

void backend::want_leases() noexcept
{
    if (leases_)
        leases_->want_all_of(pool_);
}

std::size_t backend::leases() noexcept { return leases_ ? leases_->held_of(pool_) : 0; }

void backend::shut() noexcept
{
    shut_.store(true);
    rounds_.fetch_add(1); // what shards said before counts no more
    visit_shards();
}

// From its first visit behind shut() on a shard begins no call, so what it says of those that go on only gets less.
storage::suspendable::calls backend::calls_under_way()
{
    const std::uint64_t asked = rounds_.load(std::memory_order_relaxed);
    calls out;
    for (unsigned i = 0; i < shards_.size(); ++i) {
        const shard* const s = shards_[i].load(std::memory_order_acquire);
        if (s == nullptr)
            continue;
        const bool has_said = s->leaving->answered.load(std::memory_order_acquire) == asked;
        if (has_said)
            out.running += s->leaving->calls.load(std::memory_order_relaxed);
        else
            out.silent.push_back(i);
    }
    visit_shards();
    return out;
}

storage::suspension_step backend::sync()
{
    auto mounts = std::make_shared<std::vector<unique_fd>>(handles_->duplicates());
    auto work = [mounts, losses = late_losses_] {
        for (const unique_fd& fd : *mounts)
            if (::syncfs(fd.get()) != 0) {
                const int failed = errno;
                losses->fetch_add(1); // here: whoever waits may have given up, and the kernel says it once
                return "what was written could not be synced (" + std::string(std::strerror(failed)) +
                       "): clients that wait for it write it again";
            }
        return std::string();
    };
    return on_lane(pool_, std::move(work));
}

void backend::let_go() noexcept
{
    if ((standing_.load(std::memory_order_acquire) & 1) == 0)
        standing_.fetch_add(1, std::memory_order_acq_rel);
    handles_->let_go();
    pins_.let_go(false);
    if (leases_)
        leases_->let_go_all_of(pool_);
    visit_shards();
}

storage::suspension_step backend::still_open()
{
    visit_shards(); // it may have been on its way to one that had not heard of let_go() yet
    auto work = [mounts = held_mounts_, root = handles_->root_path()] {
        return tell_still_open(mounts, root);
    };
    return on_lane(pool_, std::move(work));
}

storage::suspension_step backend::come_back()
{
    auto work = [of = watched_, attempt = watched_->begin_coming_back()] { return of->come_back(attempt); };
    return on_lane(pool_, std::move(work));
}

} // namespace verbena::posixfs
