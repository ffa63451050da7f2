// SPDX-License-Identifier: Apache-2.0
// Changes of directories: names that come, go and move.
#include "backend.hpp"

#include <verbena/protocols/storage/permissions.hpp>

#include <cerrno>

namespace verbena::memfs {

using namespace storage::ace_right;

void backend::add_name(node& directory, std::string_view name, std::uint64_t fileid)
{
    directory.add(name, fileid);
    text_bytes_ += cost_of(name);
    node& named = nodes_.at(fileid);
    named.parent = directory.attrs.fileid;
    named.place = directory.next_cookie - 1;
}

// The newest name of a file with several may be gone while others are there. To find those would be to look through all directories.
std::string backend::path_of(const node& n) const
{
    constexpr std::size_t most = 4096; // as PATH_MAX of posixfs
    std::string path;
    for (const node* at = &n; at->attrs.fileid != root_id;) {
        const auto above = nodes_.find(at->parent);
        if (above == nodes_.end())
            return {};
        const node& in = above->second;
        std::string_view name = snapshots_name;
        if (at->attrs.fileid != snapshots_id || !options_.snapshots) {
            const auto named = in.order.find(at->place);
            if (named == in.order.end() || in.children.at(named->second).fileid != at->attrs.fileid)
                return {};
            name = named->second;
        }
        if (path.size() + name.size() >= most)
            return {};
        path.insert(0, name).insert(0, 1, '/');
        at = &in;
    }
    return path;
}

void backend::take_name(node& directory, std::string_view name)
{
    text_bytes_ -= cost_of(name);
    directory.take_away(name);
}

namespace {

// As Linux: of a program that would run with the folder's group, a caller who is not in it loses the bit that says so, and so
// he does by setting any such bit on a new directory, which has inherited it.
std::uint32_t mode_of_new(const storage::attributes& made, std::uint32_t mode, bool inherits,
                          const storage::credential& who) noexcept
{
    const bool may_keep = who.uid == 0 || in_group(who, made.gid);
    if (made.type != storage::file_type::directory)
        return may_keep || (mode & 02010) != 02010 ? mode : mode & ~02000u;
    const std::uint32_t inherited = inherits ? 02000u : 0u;
    return may_keep || (mode & 06000 & ~inherited) == 0 ? mode | inherited : mode & ~02000u;
}

} // namespace

result<storage::create_result> backend::make(const storage::request& r, const storage::handle& directory,
                                             std::string_view name, storage::file_type type,
                                             std::uint32_t default_mode, const storage::set_attributes& set)
{
    auto found = find_to_change(r, directory, name, EEXIST);
    if (!found)
        return found.error();
    node& d = **found;
    if (d.children.contains(name))
        return fails(EEXIST, "create");
    const bool makes_directory = type == storage::file_type::directory;
    if (rights_of(d, r.who, makes_directory ? append_data : write_data) == 0)
        return fails(EACCES, "create");
    if (nodes_.size() >= options_.max_files || cost_of(name) > free_bytes())
        return fails(ENOSPC, "create");
    const bool inherits = (d.attrs.mode & 02000) != 0;
    const std::uint32_t mode = set.mode ? *set.mode & 07777 & ~set.umask.value_or(0) : default_mode;
    node n(memory_);
    n.attrs.type = type;
    n.attrs.uid = r.who.uid;
    n.attrs.gid = inherits ? d.attrs.gid : r.who.gid;
    n.attrs.mode = mode_of_new(n.attrs, mode, inherits, r.who);
    n.attrs.links = makes_directory ? 2 : 1;
    n.attrs.fileid = next_id_;
    n.touch(now());
    n.attrs.atime = n.attrs.mtime = n.attrs.ctime;
    n.attrs.birth = n.attrs.ctime;
    if (!set.acl)
        inherit_acl(n, d, set.mode);
    if (cost_of(name) + cost_of_acl(n) > free_bytes())
        return fails(ENOSPC, "create");
    storage::set_attributes rest = set;
    rest.mode.reset();
    if (r.who.uid != 0 || rest.uid == n.attrs.uid)
        rest.uid.reset();
    if (rest.gid == n.attrs.gid)
        rest.gid.reset();
    if (type != storage::file_type::regular || rest.size == 0)
        rest.size.reset();
    const std::uint64_t acl_bytes = cost_of_acl(n);
    text_bytes_ += acl_bytes;
    if (auto done = apply(n, rest, r.who); !done) {
        text_bytes_ -= acl_bytes;
        return done.error();
    }
    // An ACL may have given the group the right to execute.
    if (n.acl != nullptr)
        n.attrs.mode = mode_of_new(n.attrs, n.attrs.mode, inherits, r.who);

    storage::create_result out;
    out.directory.before = seen(d);
    const std::uint64_t id = next_id_++;
    const node& added = nodes_.emplace(id, std::move(n)).first->second;
    try {
        add_name(d, name, id);
    } catch (...) {
        nodes_.erase(id);
        throw;
    }
    if (added.is_directory())
        ++d.attrs.links;
    d.touch(now());
    d.attrs.mtime = d.attrs.ctime;
    out.made.handle = handle_of(id);
    out.made.attrs = seen(added);
    out.directory.after = seen(d);
    return out;
}

task<result<storage::create_result>>
backend::create(const storage::request& r, const storage::handle& directory, std::string_view name,
                storage::create_mode mode, const storage::set_attributes& set, std::uint64_t verifier)
{
    std::lock_guard lock(mutex_);
    const bool exclusive = mode == storage::create_mode::exclusive;
    storage::set_attributes rights_alone;
    rights_alone.mode = set.mode;
    rights_alone.umask = set.umask;
    rights_alone.acl = set.acl;
    auto made = make(r, directory, name, storage::file_type::regular, 0600, exclusive ? rights_alone : set);
    if (made) {
        if (exclusive)
            (*find(made->made.handle))->verifier = verifier;
        co_return std::move(made);
    }
    if (made.error().errno_value() != EEXIST || name == "." || name == ".." ||
        mode == storage::create_mode::guarded)
        co_return std::move(made);
    node& d = **find(directory);
    const auto child = d.children.find(name);
    if (child == d.children.end()) // .snapshot, which is there and not among them
        co_return std::move(made);
    node& n = nodes_.at(child->second.fileid);
    if (!n.is_regular() || (exclusive && n.verifier != verifier))
        co_return std::move(made);
    if (!exclusive && set.size) {
        storage::set_attributes size_only;
        size_only.size = set.size;
        if (auto done = apply(n, size_only, r.who); !done)
            co_return done.error();
    }
    storage::create_result out;
    out.made.handle = handle_of(n.attrs.fileid);
    out.made.attrs = seen(n);
    out.directory.before = out.directory.after = seen(d);
    out.existed = true;
    co_return out;
}

task<result<storage::create_result>> backend::mkdir(const storage::request& r,
                                                    const storage::handle& directory, std::string_view name,
                                                    const storage::set_attributes& set)
{
    if (is_of_snapshots(directory)) {
        task<void> freeing = free_ended(); // what those count that have ended is room for this one
        co_await freeing;
        const std::lock_guard lock(mutex_);
        co_return take_snapshot(r, name);
    }
    std::lock_guard lock(mutex_);
    co_return make(r, directory, name, storage::file_type::directory, 0700, set);
}

task<result<storage::create_result>> backend::symlink(const storage::request& r,
                                                      const storage::handle& directory, std::string_view name,
                                                      std::string_view target,
                                                      const storage::set_attributes& set)
{
    if (target.empty() || target.find('\0') != target.npos)
        co_return fails(EINVAL, "the target of a symbolic link");
    if (target.size() >= 4096)
        co_return fails(ENAMETOOLONG, "the target of a symbolic link");
    storage::set_attributes without_mode = set;
    without_mode.mode.reset();
    std::lock_guard lock(mutex_);
    text_bytes_ += target.size();
    auto made = make(r, directory, name, storage::file_type::symlink, 0777, without_mode);
    if (!made)
        text_bytes_ -= target.size();
    if (made) {
        node& n = **find(made->made.handle);
        n.target = target;
        n.attrs.size = target.size();
        made->made.attrs = seen(n);
    }
    co_return std::move(made);
}

task<result<storage::create_result>> backend::mknod(const storage::request& r,
                                                    const storage::handle& directory, std::string_view name,
                                                    storage::file_type type, std::uint32_t major,
                                                    std::uint32_t minor, const storage::set_attributes& set)
{
    using storage::file_type;
    const bool device = type == file_type::block_device || type == file_type::character_device;
    if (!device && type != file_type::socket && type != file_type::fifo)
        co_return fails(EINVAL, "mknod of a type that has its own call");
    if (device && r.who.uid != 0)
        co_return fails(EPERM, "mknod of a device");
    std::lock_guard lock(mutex_);
    auto made = make(r, directory, name, type, 0600, set);
    if (made && device) {
        node& n = **find(made->made.handle);
        n.attrs.device_major = major;
        n.attrs.device_minor = minor;
        made->made.attrs = seen(n);
    }
    co_return std::move(made);
}

void backend::lose_name(node& n)
{
    n.touch(now());
    if (n.is_directory())
        n.attrs.links = 0;
    else
        --n.attrs.links;
    release(n);
}

void backend::release(node& n) noexcept
{
    if (n.attrs.links != 0 || n.opens != 0)
        return;
    const std::uint64_t text = n.target.size() + cost_of_xattrs(n) + cost_of_acl(n);
    text_bytes_ -= text;
    if (n.is_kept) {
        kept_text_ -= text;
        --kept_files_;
    }
    nodes_.erase(n.attrs.fileid);
}

result<backend::removal> backend::find_victim(const storage::request& r, const storage::handle& directory,
                                              std::string_view name)
{
    auto found = find_to_change(r, directory, name, EINVAL);
    if (!found)
        return found.error();
    node& d = **found;
    auto child = d.children.find(name);
    if (child == d.children.end())
        return fails(ENOENT, "remove");
    node& n = nodes_.at(child->second.fileid);
    if (r.victim != nullptr && !(handle_of(n.attrs.fileid) == *r.victim))
        return fails(ESTALE, "remove");
    if (const int e = refuses_removal(d, n, r.who))
        return fails(e, "remove");
    return removal{&d, &n};
}

result<storage::change> backend::take_away(const storage::request& r, const storage::handle& directory,
                                           std::string_view name, bool is_rmdir)
{
    const auto found = find_victim(r, directory, name);
    if (!found)
        return found.error();
    node& d = *found->directory;
    node& n = *found->victim;
    if (n.is_directory() != is_rmdir)
        return fails(is_rmdir ? ENOTDIR : EISDIR, "remove");
    if (!n.children.empty())
        return fails(ENOTEMPTY, "rmdir");
    storage::change out;
    out.before = seen(d);
    take_name(d, name);
    if (is_rmdir)
        --d.attrs.links;
    lose_name(n);
    d.touch(now());
    d.attrs.mtime = d.attrs.ctime;
    out.after = seen(d);
    return out;
}

task<result<void>> backend::may_remove(const storage::request& r, const storage::handle& directory,
                                       std::string_view name)
{
    const std::lock_guard lock(mutex_);
    if (is_of_snapshots(directory)) {
        const auto ending = find_snapshot(r, name);
        co_return ending ? result<void>() : result<void>(ending.error());
    }
    const auto found = find_victim(r, directory, name);
    if (!found)
        co_return found.error();
    if (!found->victim->children.empty())
        co_return fails(ENOTEMPTY, "rmdir");
    co_return result<void>();
}

task<result<storage::change>> backend::remove(const storage::request& r, const storage::handle& directory,
                                              std::string_view name)
{
    std::lock_guard lock(mutex_);
    if (is_of_snapshots(directory)) // each is a directory
        co_return fails(EISDIR, "remove of a snapshot, which rmdir ends");
    co_return take_away(r, directory, name, false);
}

task<result<storage::change>> backend::rmdir(const storage::request& r, const storage::handle& directory,
                                             std::string_view name)
{
    if (is_of_snapshots(directory)) {
        task<void> freeing = free_ended();
        result<storage::change> ended = storage::change();
        {
            const std::lock_guard lock(mutex_);
            ended = end_snapshot(r, name);
        }
        if (ended)
            co_await freeing;
        co_return std::move(ended);
    }
    std::lock_guard lock(mutex_);
    co_return take_away(r, directory, name, true);
}

result<backend::renaming> backend::find_moved(const storage::request& r,
                                              const storage::handle& from_directory, std::string_view from,
                                              const storage::handle& to_directory, std::string_view to)
{
    auto found_source = find_to_change(r, from_directory, from, EINVAL);
    if (!found_source)
        return found_source.error();
    auto found_target = find_to_change(r, to_directory, to, EINVAL);
    if (!found_target)
        return found_target.error();
    node& source = **found_source;
    node& target = **found_target;
    auto child = source.children.find(from);
    if (child == source.children.end())
        return fails(ENOENT, "rename");
    const std::uint64_t id = child->second.fileid;
    node& moved = nodes_.at(id);
    auto present = target.children.find(to);
    node* victim = present != target.children.end() ? &nodes_.at(present->second.fileid) : nullptr;
    if (victim == &moved)
        return renaming{&source, &target, &moved, victim};
    const storage::handle has_name = victim != nullptr ? handle_of(victim->attrs.fileid) : storage::handle();
    if (r.victim != nullptr && !(has_name == *r.victim))
        return fails(ESTALE, "rename");
    int refused = refuses_removal(source, moved, r.who);
    if (refused == 0 && victim != nullptr)
        refused = refuses_removal(target, *victim, r.who);
    // What leads up from a directory is changed in the directory itself.
    const bool changes_moved = moved.is_directory() && &source != &target;
    const std::uint32_t added = moved.is_directory() ? append_data : write_data;
    // Also where the name is taken: the right to remove what has it is none to put something there.
    if (refused == 0 &&
        (rights_of(target, r.who, added) == 0 || (changes_moved && rights_of(moved, r.who, write_data) == 0)))
        refused = EACCES;
    if (refused != 0)
        return fails(refused, "rename");
    if (moved.is_directory()) {
        for (std::uint64_t up = target.attrs.fileid; up != root_id; up = nodes_.at(up).parent) {
            if (up == id)
                return fails(EINVAL, "rename of a directory into itself");
        }
    }
    // A name that takes another's place needs no room: that one's goes.
    if (victim == nullptr && cost_of(to) > cost_of(from) + free_bytes())
        return fails(ENOSPC, "rename");
    if (victim != nullptr && moved.is_directory() != victim->is_directory())
        return fails(moved.is_directory() ? ENOTDIR : EISDIR, "rename");
    if (victim != nullptr && !victim->children.empty())
        return fails(ENOTEMPTY, "rename");
    return renaming{&source, &target, &moved, victim};
}

task<result<void>> backend::may_rename(const storage::request& r, const storage::handle& from_directory,
                                       std::string_view from, const storage::handle& to_directory,
                                       std::string_view to)
{
    const std::lock_guard lock(mutex_);
    const auto found = find_moved(r, from_directory, from, to_directory, to);
    co_return found ? result<void>() : result<void>(found.error());
}

task<result<storage::rename_result>> backend::rename(const storage::request& r,
                                                     const storage::handle& from_directory,
                                                     std::string_view from,
                                                     const storage::handle& to_directory, std::string_view to)
{
    std::lock_guard lock(mutex_);
    const auto found = find_moved(r, from_directory, from, to_directory, to);
    if (!found)
        co_return found.error();
    node& source = *found->source;
    node& target = *found->target;
    node& moved = *found->moved;
    node* const victim = found->victim;
    const std::uint64_t id = moved.attrs.fileid;
    storage::rename_result out;
    out.from.before = seen(source);
    out.to.before = seen(target);
    if (victim == &moved) {
        out.from.after = out.from.before;
        out.to.after = out.to.before;
        co_return out;
    }
    if (victim != nullptr) {
        take_name(target, to);
        if (victim->is_directory())
            --target.attrs.links;
        lose_name(*victim);
    }
    take_name(source, from);
    add_name(target, to, id);
    if (moved.is_directory()) {
        --source.attrs.links;
        ++target.attrs.links;
    }
    const storage::file_time t = now();
    moved.touch(t);
    source.touch(t);
    if (&target != &source)
        target.touch(t);
    source.attrs.mtime = target.attrs.mtime = t;
    out.from.after = seen(source);
    out.to.after = seen(target);
    co_return out;
}

task<result<storage::link_result>> backend::link(const storage::request& r, const storage::handle& file,
                                                 const storage::handle& directory, std::string_view name)
{
    std::lock_guard lock(mutex_);
    auto found = find_to_change(r, directory, name, EEXIST);
    if (!found)
        co_return found.error();
    auto linked = find(file);
    if (!linked)
        co_return linked.error();
    node& d = **found;
    node& n = **linked;
    if (n.is_kept)
        co_return fails(EROFS, kept_rule);
    if (d.children.contains(name))
        co_return fails(EEXIST, "link");
    if (rights_of(d, r.who, write_data) == 0)
        co_return fails(EACCES, "link");
    if (n.is_directory())
        co_return fails(EPERM, "link of a directory");
    if (n.attrs.links == 0)
        co_return fails(ENOENT, "link of a file that has no name any more");
    if (n.attrs.links >= info_.max_links)
        co_return fails(EMLINK, "link");
    if (cost_of(name) > free_bytes())
        co_return fails(ENOSPC, "link");
    storage::link_result out;
    out.directory.before = seen(d);
    add_name(d, name, n.attrs.fileid);
    ++n.attrs.links;
    const storage::file_time t = now();
    n.touch(t);
    d.touch(t);
    d.attrs.mtime = t;
    out.file = seen(n);
    out.directory.after = seen(d);
    co_return out;
}

} // namespace verbena::memfs
