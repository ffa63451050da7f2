// SPDX-License-Identifier: Apache-2.0
#include "backend.hpp"

#include <verbena/core/task/frame_allocator.hpp>
#include <verbena/protocols/storage/acl_rules.hpp>
#include <verbena/protocols/storage/permissions.hpp>

#include <cerrno>
#include <cstring>
#include <limits>
#include <unistd.h>
#include <utility>

namespace verbena::memfs {

using namespace storage::ace_right;

namespace {

constexpr std::byte handle_kind{'m'};
constexpr std::size_t handle_size = 1 + 8 + 8;
// Fewer bytes are copied: they would keep a whole block, which counts as no more than they are.
constexpr std::uint64_t least_lent = file_data::block_size / 2;

// Blocks that a reader has on loan.
class lent_blocks {
public:
    lent_blocks(std::shared_ptr<file_memory> of, const file_data::loan& what) noexcept
        : of_(std::move(of)), what_(what)
    {
    }
    lent_blocks(const lent_blocks&) = delete;
    ~lent_blocks()
    {
        const std::lock_guard lock(of_->mutex);
        file_data::end_loan(of_->blocks, what_);
    }

private:
    const std::shared_ptr<file_memory> of_;
    const file_data::loan what_;
};

} // namespace

int backend::check_name(std::string_view name) noexcept
{
    if (name.empty() || name.find('/') != name.npos || name.find('\0') != name.npos)
        return EINVAL;
    return name.size() > 255 ? ENAMETOOLONG : 0;
}

backend::backend(const memfs_options& options)
    : options_(options),
      refuses_changes_(options.read_only),
      storage_(std::make_shared<file_memory>(options.max_bytes / file_data::block_size)),
      mutex_(storage_->mutex),
      memory_(storage_->blocks)
{
    random_source& random = options.random != nullptr ? *options.random : system_random();
    info_.clone_block = info_.map_block = file_data::block_size;
    info_.least_located = file_data::block_size;
    info_.xattrs = true;
    info_.acls = true;
    info_.birth_times = true;
    instance_ = random.draw() | 1;
    info_.file_space = instance_;
    node& n = nodes_.try_emplace(root_id, memory_).first->second;
    n.attrs.type = storage::file_type::directory;
    n.attrs.mode = options.root_mode & 07777;
    n.attrs.uid = options.root_uid;
    n.attrs.gid = options.root_gid;
    n.attrs.links = 2;
    n.attrs.fileid = root_id;
    n.touch(now());
    n.attrs.atime = n.attrs.mtime = n.attrs.ctime;
    n.attrs.birth = n.attrs.ctime;
    n.parent = root_id;
    if (!options.snapshots)
        return;
    node& place = nodes_.try_emplace(snapshots_id, memory_).first->second;
    place.attrs = n.attrs;
    place.attrs.fileid = snapshots_id;
    place.parent = root_id;
    place.is_kept = true;
    kept_files_ = 1;
}

// Shards may end loans meanwhile. They wait for a few blocks at a time, and whoever ends the last loan has little left to free.
backend::~backend()
{
    constexpr std::size_t at_once = 2 * arena::slab_size / arena::block_size;
    for (auto& [id, n] : nodes_) {
        bool is_more = true;
        while (is_more) {
            const std::lock_guard lock(mutex_);
            is_more = n.data.let_go_some(at_once);
        }
    }
}

storage::handle backend::handle_of(std::uint64_t fileid) const noexcept
{
    std::byte bytes[handle_size];
    bytes[0] = handle_kind;
    std::memcpy(bytes + 1, &instance_, 8);
    std::memcpy(bytes + 9, &fileid, 8);
    return storage::handle(bytes);
}

result<std::uint64_t> backend::id_of(const storage::handle& h) const noexcept
{
    const auto bytes = h.bytes();
    if (bytes.size() != handle_size || bytes[0] != handle_kind)
        return error(storage::errc::bad_handle, "not a handle of memfs");
    std::uint64_t instance = 0;
    std::uint64_t id = 0;
    std::memcpy(&instance, bytes.data() + 1, 8);
    std::memcpy(&id, bytes.data() + 9, 8);
    if (instance != instance_)
        return fails(ESTALE, "the file is gone");
    return id;
}

result<node*> backend::find(const storage::handle& h) noexcept
{
    const auto id = id_of(h);
    if (!id)
        return id.error();
    auto found = nodes_.find(*id);
    if (found == nodes_.end() || has_ended(found->second))
        return fails(ESTALE, "the file is gone");
    return &found->second;
}

result<node*> backend::find_to_change(const storage::request& r, const storage::handle& directory,
                                      std::string_view name, int dots)
{
    if (const int e = check_name(name))
        return fails(e, "a name");
    if (name == "." || name == "..")
        return fails(dots, "a name that every directory has");
    if (refuses_changes())
        return fails(EROFS, "the export is read-only");
    auto d = find(directory);
    if (!d)
        return d;
    if (!(*d)->is_directory())
        return fails(ENOTDIR, "a name in something that is no directory");
    if (rights_of(**d, r.who, execute) == 0)
        return fails(EACCES, "search of a directory");
    if ((*d)->is_kept)
        return fails(EROFS, kept_rule);
    if (options_.snapshots && *d == &nodes_.at(root_id) && name == snapshots_name)
        return fails(dots == EEXIST ? EEXIST : EROFS,
                     "the name .snapshot, which the directory of snapshots has");
    return d;
}

storage::attributes backend::seen(const node& n) const noexcept
{
    storage::attributes a = n.attrs;
    a.fsid = instance_;
    a.used = n.data.blocks() * file_data::block_size;
    if (n.is_directory())
        a.size = 4096;
    return a;
}

std::uint64_t backend::free_bytes() const noexcept
{
    const std::uint64_t taken = (memory_.places() + memory_.held()) * file_data::block_size + text_bytes_;
    return taken < options_.max_bytes ? options_.max_bytes - taken : 0;
}

task<result<storage::attributes>> backend::getattr(const storage::request&, const storage::handle& file)
{
    std::lock_guard lock(mutex_);
    auto n = find(file);
    if (!n)
        co_return n.error();
    co_return seen(**n);
}

result<node*> backend::find_data(const storage::request& r, const storage::handle& file, unsigned use,
                                 std::optional<std::uint64_t> from)
{
    return find_data(r.who, r.may_by_open(use), file, use, from);
}

result<node*> backend::find_source(const storage::request& r, const storage::handle& file)
{
    return find_data(r.who, r.may_read_source_by_open(), file, R_OK, std::nullopt);
}

result<node*> backend::find_data(const storage::credential& who, bool is_let, const storage::handle& file,
                                 unsigned use, std::optional<std::uint64_t> from)
{
    auto n = find(file);
    if (!n)
        return n;
    const node& f = **n;
    if (!f.is_regular())
        return fails(f.is_directory() ? EISDIR : EINVAL, "data of something that is no regular file");
    // The owner may always read and write, and what may be executed may be read.
    const std::uint32_t written =
        from && *from >= f.attrs.size ? write_data | append_data : std::uint32_t(write_data);
    const std::uint32_t rights = use == R_OK ? read_data | execute : written;
    if (!is_let && who.uid != f.attrs.uid && rights_of(f, who, rights) == 0)
        return fails(EACCES, use == R_OK ? "read" : "write");
    if (use != R_OK && f.is_kept)
        return fails(EROFS, kept_rule);
    return n;
}

void backend::note_change(node& n, const storage::request& r)
{
    // What is written to is nobody's new file any more; where the verifier stands in the times, they are others by then, too.
    n.verifier.reset();
    n.touch(now());
    n.attrs.mtime = n.attrs.ctime;
    if (r.who.uid != 0)
        n.attrs.mode = without_set_id(n.attrs, r.who);
}

void backend::grow(node& n, std::uint64_t from, std::uint64_t size, between what)
{
    if (size <= n.attrs.size)
        return;
    // Peers may have written behind the end, and have told nobody that it is the file's.
    if (n.reached_behind_end && from > n.attrs.size)
        n.data.zero(n.attrs.size, from, what == between::is_zeros);
    n.attrs.size = size;
}

void backend::resize(node& n, std::uint64_t size)
{
    if (size < n.attrs.size) {
        n.data.truncate(size);
        n.reached_behind_end |= n.data.is_pinned(size / file_data::block_size, 1);
    }
    grow(n, size, size);
    n.attrs.size = size;
    n.touch(now());
    n.attrs.mtime = n.attrs.ctime;
}

result<void> backend::apply(node& n, const storage::set_attributes& set, const storage::credential& who,
                            bool may_cut)
{
    // Everything is checked before anything changes.
    const bool root = who.uid == 0;
    const bool owner = root || who.uid == n.attrs.uid;
    using kind = storage::set_time::kind;
    if (set.size && !n.is_regular())
        return fails(n.is_directory() ? EISDIR : EINVAL, "size of something that is no file");
    if (set.size > max_offset)
        return fails(EFBIG, "a size past the largest offset");
    if (set.size && !may_cut && !owner && rights_of(n, who, write_data) == 0)
        return fails(EACCES, "truncate");
    if (set.uid == 0xffffffff || set.gid == 0xffffffff)
        return fails(EINVAL, "an owner of 2^32-1");
    // An ACL may let others take the file, for themselves.
    const bool takes = n.acl != nullptr && rights_of(n, who, write_owner) != 0;
    const bool may_set_uid = root || (owner && set.uid == n.attrs.uid) || (takes && set.uid == who.uid);
    const bool may_set_gid =
        root || ((owner || takes) && (set.gid == n.attrs.gid || in_group(who, set.gid.value_or(0))));
    if ((set.uid && !may_set_uid) || (set.gid && !may_set_gid) ||
        ((set.mode || set.acl) && rights_of(n, who, write_acl) == 0))
        return fails(EPERM, "not the owner");
    if (set.acl) {
        if (const int e = refuses_acl(n, *set.acl))
            return fails(e, "an ACL");
    }
    std::optional<storage::access_list> by_mode;
    if (set.mode && !set.acl && n.acl != nullptr) {
        by_mode = storage::with_mode(*n.acl, *set.mode);
        if (const int e = refuses_acl(n, *by_mode))
            return fails(e, "an ACL with another mode");
    }
    if (set.atime.how != kind::keep || set.mtime.how != kind::keep) {
        // Times of the server need no more than the right to write: a client that truncates asks for one.
        const bool chosen = set.atime.how == kind::value || set.mtime.how == kind::value;
        const bool by_open = !chosen && set.size && may_cut;
        if (!by_open && rights_of(n, who, chosen ? write_attributes : write_attributes | write_data) == 0)
            return fails(chosen ? EPERM : EACCES, "times");
    }
    // Not by the block: what a peer takes in later would bring back what was cut off, or what it left behind the end.
    if (set.size && *set.size != n.attrs.size && is_apart(n, std::min(*set.size, n.attrs.size), 1))
        return fails(EAGAIN, "another size of a file at whose end a peer has fresh memory");
    const std::uint64_t behind =
        set.size ? (*set.size + file_data::block_size - 1) / file_data::block_size : 0;
    if (set.size && *set.size < n.attrs.size && n.data.is_pinned(behind, file_data::all_places))
        return fails(EAGAIN, "truncate of a file whose memory is in use");
    if (set.size && *set.size < n.attrs.size && *set.size % file_data::block_size != 0 &&
        kept_blocks(n, *set.size, 1) > free_bytes() / file_data::block_size)
        return fails(ENOSPC, "truncate: no room to copy a block that a snapshot keeps; end a snapshot");
    const bool nothing = !set.size && !set.uid && !set.gid && !set.mode && !set.acl &&
                         set.atime.how == kind::keep && set.mtime.how == kind::keep;
    if (nothing)
        return {};
    if (set.size) {
        resize(n, *set.size);
        if (!root)
            n.attrs.mode = without_set_id(n.attrs, who);
    }
    if (set.uid || set.gid) {
        if (!n.is_directory())
            n.attrs.mode = without_set_id(n.attrs, who);
        n.attrs.uid = set.uid.value_or(n.attrs.uid);
        n.attrs.gid = set.gid.value_or(n.attrs.gid);
    }
    if (set.mode && n.attrs.type != storage::file_type::symlink) {
        n.attrs.mode = mode_set_by(n.attrs, *set.mode & 07777, who);
        if (by_mode)
            set_acl(n, std::move(*by_mode), who);
    }
    if (set.acl)
        set_acl(n, storage::access_list(set.acl->begin(), set.acl->end()), who);
    const storage::file_time t = now();
    if (set.atime.how != kind::keep)
        n.attrs.atime = set.atime.how == kind::value ? set.atime.value : t;
    if (set.mtime.how != kind::keep)
        n.attrs.mtime = set.mtime.how == kind::value ? set.mtime.value : t;
    n.touch(t);
    if (n.attrs.fileid == root_id)
        match_snapshots_to_root();
    // As where it stands in the times: version 4.1 sets the mode with the creation, and may repeat that.
    if (set.atime.how != kind::keep || set.mtime.how != kind::keep)
        n.verifier.reset();
    return {};
}

task<result<storage::change>> backend::setattr(const storage::request& r, const storage::handle& file,
                                               const storage::set_attributes& set,
                                               std::optional<storage::file_time> guard)
{
    if (refuses_changes())
        co_return fails(EROFS, "the export is read-only");
    std::lock_guard lock(mutex_);
    auto n = find(file);
    if (!n)
        co_return n.error();
    if (guard && !((*n)->attrs.ctime == *guard))
        co_return error(storage::errc::not_sync, "the file changed since the client looked");
    if ((*n)->is_kept)
        co_return fails(EROFS, kept_rule);
    storage::change out;
    out.before = seen(**n);
    if (auto done = apply(**n, set, r.who, r.may_by_open(W_OK)); !done)
        co_return done.error();
    out.after = seen(**n);
    co_return out;
}

task<result<storage::lookup_result>> backend::lookup(const storage::request& r,
                                                     const storage::handle& directory, std::string_view name)
{
    if (const int e = check_name(name))
        co_return fails(e, "a name");
    std::lock_guard lock(mutex_);
    auto d = find(directory);
    if (!d)
        co_return d.error();
    if (!(*d)->is_directory())
        co_return fails(ENOTDIR, "a name in something that is no directory");
    if (rights_of(**d, r.who, execute) == 0)
        co_return fails(EACCES, "search of a directory");
    std::uint64_t id = (*d)->attrs.fileid;
    if (name == "..") {
        id = (*d)->parent;
    } else if (name != ".") {
        auto child = (*d)->children.find(name);
        const bool is_there = child != (*d)->children.end();
        const bool is_snapshots = options_.snapshots && id == root_id && name == snapshots_name;
        if (!is_there && !is_snapshots)
            co_return fails(ENOENT, "lookup");
        id = is_snapshots ? snapshots_id : child->second.fileid;
    }
    storage::lookup_result out;
    out.found.handle = handle_of(id);
    out.found.attrs = seen(nodes_.at(id));
    out.directory = seen(**d);
    co_return out;
}

unsigned backend::access_of(const node& n, const storage::credential& who, unsigned wanted) const noexcept
{
    // In the directory of snapshots they are made and ended.
    if (refuses_changes() || (n.is_kept && n.attrs.fileid != snapshots_id))
        wanted &= ~unsigned(W_OK);
    // Whoever may write in one way or another is let in; what he does then is looked at by itself.
    const std::uint32_t writing =
        write_data | append_data | (n.is_directory() && n.acl != nullptr ? delete_child : 0);
    unsigned has = 0;
    for (const auto& [bit, rights] :
         {std::pair(unsigned(R_OK), read_data), std::pair(unsigned(W_OK), writing),
          std::pair(unsigned(X_OK), execute)}) {
        if ((wanted & bit) != 0 && rights_of(n, who, rights) != 0)
            has |= bit;
    }
    return has;
}

task<result<unsigned>> backend::access(const storage::request& r, const storage::handle& file,
                                       unsigned wanted)
{
    std::lock_guard lock(mutex_);
    auto n = find(file);
    if (!n)
        co_return n.error();
    co_return access_of(**n, r.who, wanted);
}

task<result<storage::opened_file>> backend::open(const storage::request& r, const storage::handle& file,
                                                 unsigned wanted, storage::open_right right)
{
    std::lock_guard lock(mutex_);
    auto found = find(file);
    if (!found)
        co_return found.error();
    node& n = **found;
    if (!n.is_regular())
        co_return fails(n.is_directory() ? EISDIR : EINVAL, "an open of something that is no regular file");
    if (refuses_changes() && (wanted & W_OK) != 0)
        co_return fails(EROFS, "the export is read-only");
    if (n.is_kept && (wanted & W_OK) != 0)
        co_return fails(EROFS, kept_rule);
    if (right == storage::open_right::asked) {
        // Who may execute a file may read it, as its kernel has to.
        const unsigned has = access_of(n, r.who, R_OK | W_OK | X_OK);
        const bool reads = (wanted & R_OK) == 0 || (has & (R_OK | X_OK)) != 0;
        const bool writes = (wanted & W_OK) == 0 || (has & W_OK) != 0;
        if (!reads || !writes)
            co_return fails(EACCES, "open");
    }
    // Who may do no more than append is asked each time.
    unsigned granted = wanted;
    if (right == storage::open_right::asked && r.who.uid != n.attrs.uid &&
        rights_of(n, r.who, write_data) == 0)
        granted &= ~unsigned(W_OK);
    storage::opened_file out;
    out.file = std::make_shared<const pin>(*this, n, r.who, granted);
    out.attrs = seen(n);
    co_return out;
}

task<result<std::string>> backend::readlink(const storage::request&, const storage::handle& link)
{
    std::lock_guard lock(mutex_);
    auto n = find(link);
    if (!n)
        co_return n.error();
    if ((*n)->attrs.type != storage::file_type::symlink)
        co_return fails(EINVAL, "readlink of something else");
    co_return std::string((*n)->target);
}

task<result<storage::read_result>> backend::read(const storage::request& r, const storage::handle& file,
                                                 std::uint64_t offset, std::span<std::byte> out)
{
    std::lock_guard lock(mutex_);
    auto n = find_data(r, file, R_OK);
    if (!n)
        co_return n.error();
    node& f = **n;
    const std::uint64_t left = offset < f.attrs.size ? f.attrs.size - offset : 0;
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(left, out.size()));
    f.data.read(offset, out.first(count));
    storage::read_result done;
    done.count = static_cast<std::uint32_t>(count);
    done.end_of_file = count == left;
    done.attrs = seen(f);
    co_return done;
}

task<result<storage::located_read>> backend::locate(const storage::request& r, const storage::handle& file,
                                                    std::uint64_t offset, std::uint32_t length,
                                                    storage::locatable)
{
    storage::located_read out;
    std::unique_lock lock(mutex_);
    auto n = find_data(r, file, R_OK);
    if (!n)
        co_return n.error();
    const node& f = **n;
    const std::uint64_t left = offset < f.attrs.size ? f.attrs.size - offset : 0;
    const std::uint64_t count = std::min<std::uint64_t>(left, length);
    const auto loan = count >= least_lent ? f.data.lend(offset, count) : std::nullopt;
    if (!loan)
        co_return out;
    out.read.count = static_cast<std::uint32_t>(count);
    out.read.end_of_file = count == left;
    out.read.attrs = seen(f);
    lock.unlock(); // ~lent_blocks() takes it
    try {
        out.memory.keeper = std::allocate_shared<lent_blocks>(verbena::detail::frame_allocator<lent_blocks>(),
                                                              storage_, *loan);
    } catch (const std::bad_alloc&) {
        lock.lock();
        file_data::end_loan(memory_, *loan);
        co_return storage::located_read();
    }
    out.memory.pieces = loan->pieces;
    out.memory.count = loan->count;
    out.here = true;
    co_return out;
}

task<result<storage::write_result>> backend::write(const storage::request& r, const storage::handle& file,
                                                   std::uint64_t offset,
                                                   std::span<const std::span<const std::byte>> pieces,
                                                   storage::stability wanted)
{
    if (refuses_changes())
        co_return fails(EROFS, "the export is read-only");
    std::uint64_t length = 0;
    for (auto piece : pieces)
        length += piece.size();
    if (offset > max_offset || length > max_offset - offset)
        co_return fails(EFBIG, "a write past the largest offset");
    std::lock_guard lock(mutex_);
    auto n = find_data(r, file, W_OK, offset);
    if (!n)
        co_return n.error();
    node& f = **n;
    if (is_apart(f, offset, length))
        co_return fails(EAGAIN, "a write of bytes that a peer has fresh memory of");
    const std::uint64_t missing = f.data.missing(offset, length) + kept_blocks(f, offset, length);
    if (missing > free_bytes() / file_data::block_size)
        co_return fails(ENOSPC, "write");
    storage::write_result done;
    done.file.before = seen(f);
    f.data.reserve(offset, length);
    f.data.make_own(offset, length);
    std::uint64_t at = offset;
    for (auto piece : pieces) {
        f.data.write(at, piece);
        at += piece.size();
    }
    f.verifier.reset();
    if (length != 0) {
        grow(f, offset, at, between::is_as_peers_left_it);
        note_change(f, r);
    }
    done.count = static_cast<std::uint32_t>(length);
    done.committed = wanted;
    done.file.after = seen(f);
    co_return done;
}

task<result<storage::readdir_result>> backend::readdir(const storage::request& r,
                                                       const storage::handle& directory, std::uint64_t cookie,
                                                       std::uint64_t verifier, bool with_attributes,
                                                       storage::directory_sink& sink)
{
    std::lock_guard lock(mutex_);
    auto found = find(directory);
    if (!found)
        co_return found.error();
    const node& d = **found;
    if (!d.is_directory())
        co_return fails(ENOTDIR, "listing of something that is no directory");
    if (cookie != 0 && verifier != instance_)
        co_return error(storage::errc::bad_cookie, "the cookie verifier has changed");
    if (rights_of(d, r.who, read_data) == 0)
        co_return fails(EACCES, "listing of a directory");
    const bool may_search = rights_of(d, r.who, execute) != 0;
    storage::readdir_result out;
    out.verifier = instance_;
    bool taken = false;
    const auto offer = [&](std::uint64_t number, std::string_view name, std::uint64_t id) {
        storage::directory_entry e;
        e.fileid = id;
        e.cookie = number;
        e.name = name;
        if (with_attributes && may_search) {
            e.attrs = seen(nodes_.at(id));
            e.handle = handle_of(id);
        }
        const bool more = sink.take(e);
        taken = taken || more;
        return more;
    };
    bool room = true;
    if (cookie < 1)
        room = offer(1, ".", d.attrs.fileid);
    if (room && cookie < 2)
        room = offer(2, "..", d.parent);
    for (auto at = d.order.upper_bound(cookie); room && at != d.order.end(); ++at)
        room = offer(at->first, at->second, d.children.find(at->second)->second.fileid);
    if (!room && !taken)
        co_return error(storage::errc::too_small, "no room for one entry");
    out.end = room;
    out.directory = seen(d);
    co_return out;
}

task<result<storage::filesystem_stat>> backend::statfs(const storage::request&, const storage::handle& file)
{
    std::lock_guard lock(mutex_);
    if (auto n = find(file); !n)
        co_return n.error();
    storage::filesystem_stat out;
    out.total_bytes = options_.max_bytes;
    out.free_bytes = out.available_bytes = free_bytes();
    out.total_files = options_.max_files;
    out.free_files = out.available_files = options_.max_files - nodes_.size();
    co_return out;
}

task<result<storage::change>> backend::commit(const storage::request&, const storage::handle& file,
                                              std::uint64_t, std::uint32_t)
{
    std::lock_guard lock(mutex_);
    auto n = find(file);
    if (!n)
        co_return n.error();
    if (!(*n)->is_regular())
        co_return fails((*n)->is_directory() ? EISDIR : EINVAL,
                        "commit of something that is no regular file");
    storage::change out;
    out.before = out.after = seen(**n);
    co_return out;
}

std::uint64_t lent_bytes_of(const storage::file_backend& memfs) noexcept
{
    return static_cast<const backend&>(memfs).lent_bytes();
}

result<std::unique_ptr<storage::file_backend>> open_memfs(const memfs_options& options, blocking_pool&)
{
    if (options.max_files < 1u + options.snapshots)
        return error(std::errc::invalid_argument, "a memfs without room for its root");
    try {
        return std::unique_ptr<storage::file_backend>(std::make_unique<backend>(options));
    } catch (const std::bad_alloc&) {
        return error(std::errc::not_enough_memory, "addresses for max_bytes of a memfs", options.max_bytes);
    }
}

} // namespace verbena::memfs
