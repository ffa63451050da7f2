// SPDX-License-Identifier: Apache-2.0
#include "room_behind_end.hpp"

#include "file_status.hpp"
#include "identity.hpp"
#include "unique_fd.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <new>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace verbena::posixfs {

namespace {

using file_key = std::pair<dev_t, ino_t>;
constexpr std::uint64_t page = 4096;

struct known_files {
    std::mutex mutex;
    std::map<file_key, std::uint64_t> ends;
    std::atomic<std::size_t> count{0}; // for those who close any other file
};

known_files& all_known() noexcept
{
    static known_files all;
    return all;
}

// Whoever opens the file is to wait until it is done, which nobody need be told. As SIGURG, which does nothing,
// instead of SIGIO, which ends the process.
bool has_alone(int fd) noexcept
{
    return ::fcntl(fd, F_SETSIG, SIGURG) == 0 && ::fcntl(fd, F_SETLEASE, F_WRLCK) == 0;
}

} // namespace

void room_behind_end::note(const numbered_file& file, std::uint64_t end)
{
    known_files& all = all_known();
    const std::lock_guard lock(all.mutex);
    const file_key key(file.device, file.inode);
    if (all.ends.size() >= most && !all.ends.contains(key))
        return;
    std::uint64_t& known = all.ends[key];
    known = std::max(known, end);
    all.count.store(all.ends.size(), std::memory_order_relaxed);
}

bool room_behind_end::has(const numbered_file& file) noexcept
{
    known_files& all = all_known();
    if (all.count.load(std::memory_order_relaxed) == 0)
        return false;
    const std::lock_guard lock(all.mutex);
    return all.ends.contains(file_key(file.device, file.inode));
}

void room_behind_end::give_back(const numbered_file& file, int path) noexcept
{
    act_as_daemon();
    const fd_path name(path);
    constexpr int how = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    // To read first: to open a file for writing takes leases away, as that of a delegation.
    unique_fd fd(::open(name.text(), O_RDONLY | how));
    if (!fd || !has_alone(fd.get()))
        return;
    fd.reset();
    fd.reset(::open(name.text(), O_RDWR | how));
    if (!fd || !has_alone(fd.get()))
        return;
    known_files& all = all_known();
    std::uint64_t end = 0;
    {
        const std::lock_guard lock(all.mutex);
        const auto known = all.ends.find(file_key(file.device, file.inode));
        if (known == all.ends.end())
            return;
        end = known->second;
        all.ends.erase(known);
        all.count.store(all.ends.size(), std::memory_order_relaxed);
    }
    struct stat st{};
    if (file_status(fd.get(), st) != 0 || !S_ISREG(st.st_mode) || st.st_nlink == 0)
        return;
    const auto size = static_cast<std::uint64_t>(st.st_size);
    // tmpfs frees nothing where the length stays, and ext4 makes no hole behind the end.
    if (const std::uint64_t from = (size + page - 1) / page * page; from < end)
        (void)::fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
                          static_cast<off_t>(end - from));
    if (::ftruncate(fd.get(), st.st_size) == 0) {
        const timespec times[2] = {{0, UTIME_OMIT}, st.st_mtim}; // its data are what they were
        (void)::futimens(fd.get(), times);
    }
    change_numbers::of_process()->changed(file);
}

class room_behind_end::trying final : public blocking_pool::job {
public:
    trying(const numbered_file& file, int path) noexcept : file_(file), path_(path) {}
    trying(const trying&) = delete;
    ~trying() { ::close(path_); }
    void execute() noexcept override
    {
        give_back(file_, path_);
        delete this;
    }
    void deliver() noexcept override {}

private:
    const numbered_file file_;
    const int path_;
};

void room_behind_end::closer::arm(const numbered_file& file, int fd) noexcept
{
    if (path_ < 0 && file.local && has(file)) {
        file_ = file;
        path_ = ::open(fd_path(fd).text(), O_PATH | O_CLOEXEC);
    }
}

room_behind_end::closer::~closer()
{
    if (path_ < 0)
        return;
    auto* const job = new (std::nothrow) trying(file_, path_); // deletes itself
    if (job == nullptr)
        ::close(path_);
    else if (!pool_.submit(*job))
        delete job;
}

} // namespace verbena::posixfs
