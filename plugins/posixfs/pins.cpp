// SPDX-License-Identifier: Apache-2.0
#include "pins.hpp"

#include "file_status.hpp"
#include "fnv1a.hpp"
#include "mount_table.hpp"

#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/random.hpp>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <fcntl.h>
#include <new>
#include <optional>

namespace verbena::posixfs {

namespace {

// An O_PATH descriptor of what `fd` has open. What was made here is open for writing by `fd`, and nobody
// could run it. To open it anew might ask another host.
unique_fd path_of(int fd, bool local) noexcept
{
    if (local && !is_path_only(fd))
        return unique_fd(::open(fd_path(fd).text(), O_PATH | O_CLOEXEC));
    return unique_fd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

} // namespace

std::size_t pin_table::handle_hash::operator()(const storage::handle& h) const noexcept
{
    return fnv1a(h.bytes());
}

std::shared_ptr<const shared_fd> pin_table::hold::descriptor() const noexcept
{
    const std::lock_guard lock(mutex_);
    return of_->fd;
}

pin_table::~pin_table()
{
    const std::lock_guard lock(mutex_);
    assert(entries_.empty() && "the back end outlives its open files");
    std::erase(sharing_, this);
}

void pin_table::share(std::uint64_t space, const mount_point& mount)
{
    const std::lock_guard lock(mutex_);
    if (space != 0 && space_ == 0)
        sharing_.push_back(this);
    else if (space == 0)
        std::erase(sharing_, this);
    space_ = space;
    mount_ = &mount;
}

void pin_table::let_go(bool nameless) noexcept
{
    std::vector<std::shared_ptr<const shared_fd>> gone; // closed behind the lock
    const std::lock_guard lock(mutex_);
    try {
        gone.reserve(entries_.size());
    } catch (const std::bad_alloc&) { // then under it
    }
    for (auto& [handle, e] : entries_) {
        if (!e.fd || (e.nameless && !nameless))
            continue;
        e.unlink();
        held_.fetch_sub(1, std::memory_order_relaxed);
        if (gone.size() < gone.capacity())
            gone.push_back(std::move(e.fd));
        e.fd.reset();
    }
}

// Under the lock for some of them at a time, as shards wait for it. Where files come or go meanwhile, some may be missing: whoever
// asks has put off all opens.
std::vector<pin_table::kept_file> pin_table::kept() const
{
    constexpr std::size_t buckets_at_once = 256;
    std::vector<kept_file> all;
    for (std::size_t at = 0;;) {
        const std::lock_guard lock(mutex_);
        const std::size_t end = std::min(at + buckets_at_once, entries_.bucket_count());
        for (; at < end; ++at)
            for (auto e = entries_.begin(at); e != entries_.end(at); ++e)
                if (e->second.opens != 0 && e->second.fd)
                    all.push_back({e->second.fd,
                                   e->second.opener != nullptr ? e->second.opener->first : std::string()});
        if (at == entries_.bucket_count())
            return all;
    }
}

pin_table::entry& pin_table::entry_of(const known_file& file)
{
    const auto [at, is_new] = entries_.try_emplace(file.handle, *this, file.mount);
    if (is_new)
        at->second.handle = &at->first;
    return at->second;
}

pin_table::entry* pin_table::find_open(const storage::handle& file) noexcept
{
    const auto at = entries_.find(file);
    return at != entries_.end() && at->second.opens != 0 ? &at->second : nullptr;
}

pin_table::entry* pin_table::find_open_anywhere(const storage::handle& file) noexcept
{
    entry* found = find_open(file);
    for (std::size_t i = 0; found == nullptr && space_ != 0 && i < sharing_.size(); ++i)
        if (sharing_[i] != this && sharing_[i]->space_ == space_)
            found = sharing_[i]->find_open(file);
    return found;
}

pin_table::peer_map& pin_table::peers()
{
    static peer_map all(8, name_hash{system_random().key()});
    return all;
}

void pin_table::charge(entry& e) noexcept
{
    if (e.charged || !e.nameless || !e.fd || e.opener == nullptr)
        return;
    e.charged = true;
    ++e.opener->second.nameless;
}

// It is not open any more.
void pin_table::forget(entry& e) noexcept
{
    if (e.opener == nullptr)
        return;
    if (e.charged)
        --e.opener->second.nameless;
    if (--e.opener->second.files == 0)
        peers().erase(peers().find(e.opener->first));
    e.opener = nullptr;
}

// Of a name that is about to go: whether its file would be one too many of its peer's without a name.
bool pin_table::share_is_used(const entry& e, const known_file& file) const noexcept
{
    if (e.opener == nullptr || e.nameless || e.opener->second.nameless < std::max<std::size_t>(most_ / 2, 1))
        return false;
    struct stat st{};
    return !file.mount.local || file_status(file.fd, st) != 0 || st.st_nlink <= 1;
}

void pin_table::use(entry& e) noexcept
{
    charge(e);
    if (e.fd && !e.nameless && e.removals == 0)
        closable_.push_back(e);
    else
        e.unlink();
}

bool pin_table::make_room(unsigned looks) const noexcept
{
    for (; held() >= most_; --looks) {
        entry* const e = closable_.front();
        if (e == nullptr || looks == 0)
            return false;
        e->unlink();
        // Other hosts are not asked here: what was removed there is gone in any case.
        struct stat st{};
        e->nameless = e->mount->local && file_status(e->fd->get(), st) == 0 && st.st_nlink == 0;
        if (e->nameless) {
            charge(*e);
            continue;
        }
        held_.fetch_sub(1, std::memory_order_relaxed);
        e->of.closed_.fetch_add(1, std::memory_order_relaxed);
        e->fd.reset();
    }
    return true;
}

int pin_table::give(entry& e, const known_file& file, unsigned looks) noexcept
{
    if (e.fd)
        return 0;
    if (!make_room(looks))
        return EAGAIN;
    e.fd = file.path;
    if (!e.fd) {
        unique_fd made = path_of(file.fd, file.mount.local);
        if (!made)
            return errno;
        try {
            e.fd = std::make_shared<const shared_fd>(pool_, std::move(made), !file.mount.local,
                                                     file.mount.sending);
        } catch (const std::bad_alloc&) {
            return ENOMEM;
        }
    }
    e.mount = &file.mount;
    e.later = e.lost = e.unkept = false;
    held_.fetch_add(1, std::memory_order_relaxed);
    return 0;
}

int pin_table::try_to_give(entry& e, const known_file& file) noexcept
{
    const int failed = give(e, file);
    // At the bound that is how it should be, and told when it is in somebody's way.
    if (failed == 0 || failed == EAGAIN || std::exchange(e.unkept, true))
        return failed;
    closed_.fetch_add(1, std::memory_order_relaxed);
    try {
        log_limited(
            closed_logged_, log_level::warning, "posixfs",
            "a file that a client has open has no descriptor, and will be lost if somebody removes or moves "
            "it here: there is none left: raise the limit of descriptors (LimitNOFILE=)",
            {{"export", name_},
             {"directory", root_},
             {"error", std::error_code(failed, std::system_category()).message()}});
    } catch (const std::bad_alloc&) { // the count tells it
    }
    return failed;
}

result<pin_table::pin> pin_table::add(const known_file& file, bool later, std::string_view client)
{
    const std::string group = client.empty() ? std::string() : peer_group(client);
    std::optional<pin> closed; // behind the lock
    const std::lock_guard lock(mutex_);
    entry& e = entry_of(file);
    later = later && e.removals == 0;
    e.later = e.later || (later && !e.fd);
    if (e.opener == nullptr && !group.empty()) {
        e.opener = &*peers().try_emplace(group).first;
        ++e.opener->second.files;
    }
    const int failed = later ? 0 : try_to_give(e, file);
    if (failed != 0 && e.removals != 0)
        return error::from_errno(failed, "a descriptor of a file that is just being removed");
    pin made(e, &entry::opens);
    use(e);
    // Its last name may have gone since the caller looked. From here on a removal finds the pin.
    struct stat st{};
    if (failed != 0 && e.opens == 1 && file.mount.local && file_status(file.fd, st) == 0 &&
        st.st_nlink == 0) {
        closed = std::move(made);
        return error::from_errno(ESTALE, "the file was removed");
    }
    return made;
}

void pin_table::give_later(const known_file& file) noexcept
{
    const std::lock_guard lock(mutex_);
    if (entry* const e = find_open(file.handle); e != nullptr && e->later) {
        e->later = false;
        (void)try_to_give(*e, file);
        use(*e);
    }
}

result<pin_table::removal> pin_table::removing(const known_file& file)
{
    int failed = 0;
    bool is_share = false;
    {
        const std::lock_guard lock(mutex_);
        entry& e = entry_of(file);
        is_share = e.opens != 0 && share_is_used(e, file);
        if (e.opens != 0)
            failed = is_share ? EAGAIN : give(e, file, looks_of_removal);
        if (failed == 0) {
            removal made(e, &entry::removals);
            use(e);
            return made;
        }
    }
    if (failed != EAGAIN)
        return error::from_errno(failed, "a descriptor of an open file that is to be removed");
    refused_.fetch_add(1, std::memory_order_relaxed);
    log_limited(
        refused_logged_, log_level::warning, "posixfs",
        is_share
            ? "a file is not removed, because the client that has it open has as many open files without "
              "names as one may have: raise the limit of descriptors (LimitNOFILE=)"
            : "a file is not removed, because a client has it open and posixfs has no descriptor left that "
              "would keep it: raise the limit of descriptors (LimitNOFILE=)",
        {{"export", name_}, {"directory", root_}});
    // Who has those open may keep them for good, so that nobody is told to come again.
    return error::from_errno(EBUSY, "as many open files without names as there may be");
}

bool pin_table::removal::keeps() noexcept
{
    const std::lock_guard lock(mutex_);
    if (of_->opens != 0)
        of_->nameless = true;
    return of_->opens != 0;
}

bool pin_table::keeps(const known_file& file, bool nameless) noexcept
{
    const std::lock_guard lock(mutex_);
    entry* const e = find_open_anywhere(file.handle);
    if (e == nullptr)
        return false;
    e->nameless = e->nameless || nameless;
    (void)e->of.try_to_give(*e, file); // without it the file lasts as long as it is cached
    use(*e);
    return true;
}

const mount_point* pin_table::open(const storage::handle& file, unique_fd& out) noexcept
{
    const std::lock_guard lock(mutex_);
    entry* const e = find_open_anywhere(file);
    if (e == nullptr || !e->fd)
        return nullptr;
    use(*e);
    out.reset(::fcntl(e->fd->get(), F_DUPFD_CLOEXEC, 0));
    return &e->of == this ? e->mount : mount_;
}

void pin_table::missed(const storage::handle& file) noexcept
{
    {
        const std::lock_guard lock(mutex_);
        entry* const e = find_open(file);
        if (e == nullptr || e->fd || std::exchange(e->lost, true))
            return;
    }
    lost_.fetch_add(1, std::memory_order_relaxed);
    log_limited(
        lost_logged_, log_level::warning, "posixfs",
        "a file that a client has open is gone: somebody removed or moved it here while posixfs had closed "
        "it, as more files are open than it "
        "may have descriptors for: raise the limit of descriptors (LimitNOFILE=)",
        {{"export", name_}, {"directory", root_}});
}

void pin_table::end(entry& e, std::size_t entry::* count) noexcept
{
    pin_table& of = e.of;
    bool local = false;
    bool nameless = false;
    std::shared_ptr<const shared_fd> fd;
    storage::handle file;
    {
        const std::lock_guard lock(mutex_);
        --(e.*count);
        if (e.opens != 0 || e.removals != 0)
            return use(e);
        e.unlink();
        nameless = e.nameless;
        local = e.mount->local;
        fd = std::move(e.fd);
        if (fd)
            held_.fetch_sub(1, std::memory_order_relaxed);
        forget(e);
        file = *e.handle;
        of.entries_.erase(of.entries_.find(file));
    }
    struct stat st{};
    if (fd && local && file_status(fd->get(), st) == 0)
        nameless = st.st_nlink == 0;
    if (nameless)
        of.removals_.add(file);
}

open_file_counters pin_table::counters() const noexcept
{
    open_file_counters out;
    out.closed = closed_.load(std::memory_order_relaxed);
    out.lost = lost_.load(std::memory_order_relaxed);
    out.refused = refused_.load(std::memory_order_relaxed);
    return out;
}

} // namespace verbena::posixfs
