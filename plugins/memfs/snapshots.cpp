// SPDX-License-Identifier: Apache-2.0
// Snapshots: trees of files that nobody changes, which share their blocks with the files that they are pictures of.
// docs/internals/pnfs.md, "Snapshots".
#include "backend.hpp"

#include <cerrno>
#include <new>

namespace verbena::memfs {

using namespace storage::ace_right;

/// While it lives, nobody maps a file.
class backend::held_back {
public:
    explicit held_back(backend& of) : of_(of)
    {
        const std::lock_guard lock(of_.mutex_);
        ++of_.holding_back_;
    }
    held_back(const held_back&) = delete;
    ~held_back()
    {
        const std::lock_guard lock(of_.mutex_);
        --of_.holding_back_;
    }

private:
    backend& of_;
};

bool backend::takes_in(const storage::handle& directory) const noexcept { return is_of_snapshots(directory); }

bool backend::has(std::string_view name, const storage::handle& file) const noexcept
{
    const std::lock_guard lock(mutex_);
    const node& place = nodes_.at(snapshots_id);
    const auto found = place.children.find(name);
    if (found == place.children.end())
        return false;
    const std::uint64_t root = found->second.fileid;
    const auto id = id_of(file);
    return id && *id >= root && *id < snapshots_.at(root).end;
}

std::shared_ptr<const void> backend::hold_back_mappings() { return std::make_shared<held_back>(*this); }

snapshot_counts backend::counts() const noexcept
{
    const std::lock_guard lock(mutex_);
    return {snapshots_.size(), memory_.held() * file_data::block_size, fresh_blocks_, taken_in_};
}

snapshot_counts snapshot_counts_of(const storage::file_backend& memfs) noexcept
{
    return static_cast<const backend&>(memfs).counts();
}

std::uint64_t backend::kept_blocks(const node& n, std::uint64_t offset, std::uint64_t length) noexcept
{
    if (length == 0)
        return 0;
    const std::uint64_t first = offset / file_data::block_size;
    return n.data.last_of_kept(first, (offset + length - 1) / file_data::block_size - first + 1);
}

bool backend::is_apart(const node& n, std::uint64_t offset, std::uint64_t length) noexcept
{
    if (length == 0)
        return false;
    const std::uint64_t first = offset / file_data::block_size;
    const std::uint64_t count = (offset + length - 1) / file_data::block_size - first + 1;
    return n.data.fresh_before(first, count) != count;
}

void backend::match_snapshots_to_root()
{
    if (!options_.snapshots)
        return;
    const node& root = nodes_.at(root_id);
    node& place = nodes_.at(snapshots_id);
    place.acl = root.acl == nullptr ? nullptr : std::make_unique<storage::access_list>(*root.acl);
    place.attrs.mode = root.attrs.mode;
    place.attrs.uid = root.attrs.uid;
    place.attrs.gid = root.attrs.gid;
    place.touch(root.attrs.ctime);
}

// Of all that has a name and is in no snapshot. Ids follow each other, from next_id_ on, the root's first.
std::unordered_map<std::uint64_t, node> backend::copy_tree()
{
    std::unordered_map<std::uint64_t, std::uint64_t> ids;
    std::uint64_t next = next_id_;
    ids.emplace(root_id, next++);
    for (const auto& [id, n] : nodes_)
        if (!n.is_kept && n.attrs.links != 0 && id != root_id)
            ids.emplace(id, next++);
    std::unordered_map<std::uint64_t, node> out;
    out.reserve(ids.size());
    for (const auto& [id, copy_id] : ids) {
        const node& from = nodes_.at(id);
        node& to = out.try_emplace(copy_id, memory_).first->second;
        to.is_kept = true;
        to.attrs = from.attrs;
        to.attrs.fileid = copy_id;
        to.data.keep(from.data);
        to.target = from.target;
        to.xattrs = from.xattrs;
        if (from.is_directory())
            to.parent = id == root_id ? snapshots_id : ids.at(from.parent);
        to.order = from.order;
        to.next_cookie = from.next_cookie;
        for (const auto& [name, entry] : from.children)
            to.children.emplace_hint(to.children.end(), name,
                                     node::child{entry.cookie, ids.at(entry.fileid)});
        if (from.acl != nullptr)
            to.acl = std::make_unique<storage::access_list>(*from.acl);
    }
    return out;
}

result<storage::create_result> backend::take_snapshot(const storage::request& r, std::string_view name)
{
    if (const int e = check_name(name))
        return fails(e, "the name of a snapshot: 1 to 255 bytes, without / and NUL");
    if (options_.read_only)
        return fails(EROFS, "a snapshot of an export that is read-only");
    node& place = nodes_.at(snapshots_id);
    if (rights_of(place, r.who, execute) == 0)
        return fails(EACCES, "search of a directory");
    if (name == "." || name == ".." || place.children.contains(name))
        return fails(EEXIST, "a snapshot of that name: choose another, or end that one by rmdir");
    if (rights_of(place, r.who, append_data) == 0)
        return fails(EACCES, "a snapshot: who may make a directory in the root of the export may take one");
    if (snapshots_.size() >= options_.max_snapshots)
        return fails(ENOSPC, "a snapshot: there are snapshots_max of them; end one by rmdir");
    if (mapped_ != 0)
        return fails(EAGAIN, "a snapshot while peers have files' memory");
    std::uint64_t files = 0, text = cost_of(name);
    for (auto& [id, n] : nodes_) {
        if (n.is_kept || n.attrs.links == 0)
            continue;
        ++files;
        text += n.target.size() + cost_of_xattrs(n) + cost_of_acl(n);
        for (const auto& [child, entry] : n.children)
            text += cost_of(child);
        // Bytes behind the end are no part of the file, and would be found in its memory.
        forget_behind_end(n);
        if (n.reached_behind_end)
            return fails(ENOMEM, "a snapshot");
    }
    if (files > options_.max_files - nodes_.size())
        return fails(ENOSPC, "a snapshot: its files count for max_files; end a snapshot, or raise that");
    if (text > free_bytes())
        return fails(ENOSPC, "a snapshot: its names count for max_bytes; end a snapshot, or raise that");
    storage::create_result out;
    out.directory.before = seen(place);
    const std::uint64_t root = next_id_;
    try {
        nodes_.reserve(nodes_.size() + files);
        snapshots_.reserve(snapshots_.size() + 1);
        std::unordered_map<std::uint64_t, node> made = copy_tree();
        place.add(name, root);
        try {
            snapshots_.emplace(root, snapshot{root + files, r.who.uid});
        } catch (...) {
            place.take_away(name);
            throw;
        }
        nodes_.merge(made);
    } catch (const std::bad_alloc&) {
        return fails(ENOMEM, "a snapshot");
    }
    next_id_ += files;
    text_bytes_ += text;
    ++place.attrs.links;
    place.touch(now());
    place.attrs.mtime = place.attrs.ctime;
    out.made.handle = handle_of(root);
    out.made.attrs = seen(nodes_.at(root));
    out.directory.after = seen(place);
    return out;
}

result<const node*> backend::find_snapshot(const storage::request& r, std::string_view name) const
{
    if (const int e = check_name(name))
        return fails(e, "the name of a snapshot");
    if (name == "." || name == "..")
        return fails(EINVAL, "a name that every directory has");
    if (options_.read_only)
        return fails(EROFS, "the export is read-only");
    const node& place = nodes_.at(snapshots_id);
    if (rights_of(place, r.who, execute) == 0)
        return fails(EACCES, "search of a directory");
    const auto found = place.children.find(name);
    if (found == place.children.end())
        return fails(ENOENT, "a snapshot of that name");
    if (r.victim != nullptr && !(handle_of(found->second.fileid) == *r.victim))
        return fails(ESTALE, "remove");
    const bool is_sticky = (place.attrs.mode & 01000) != 0;
    const std::uint64_t root = found->second.fileid;
    if (rights_of(place, r.who, write_data) == 0)
        return fails(EACCES, "the end of a snapshot: who may remove a directory from the root may end one");
    if (is_sticky && r.who.uid != 0 && r.who.uid != place.attrs.uid && r.who.uid != snapshots_.at(root).taker)
        return fails(EPERM, "the end of a snapshot that somebody else has taken: the root is sticky");
    return &nodes_.at(root);
}

// Files that somebody has open, or mapped, stay until he lets them go, as those without a name do.
result<storage::change> backend::end_snapshot(const storage::request& r, std::string_view name)
{
    const auto found = find_snapshot(r, name);
    if (!found)
        return found.error();
    const std::uint64_t root = (*found)->attrs.fileid;
    const std::uint64_t end = snapshots_.at(root).end;
    node& place = nodes_.at(snapshots_id);
    storage::change out;
    out.before = seen(place);
    for (std::uint64_t id = root; id != end; ++id) {
        node& n = nodes_.at(id);
        for (const auto& [child, entry] : n.children)
            text_bytes_ -= cost_of(child);
        n.attrs.links = 0;
        release(n);
    }
    snapshots_.erase(root);
    take_name(place, name);
    --place.attrs.links;
    place.touch(now());
    place.attrs.mtime = place.attrs.ctime;
    out.after = seen(place);
    return out;
}

} // namespace verbena::memfs
