// SPDX-License-Identifier: Apache-2.0
// Snapshots: trees of files that nobody changes, which share their blocks with the files that they are pictures of.
// docs/internals/pnfs.md, "Snapshots".
#include "backend.hpp"

#include <verbena/core/task/yield.hpp>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>
#include <optional>

namespace verbena::memfs {

using namespace storage::ace_right;

// All shards that have something to do in the file system wait meanwhile: some hundred microseconds.
constexpr unsigned most_freed_at_once = 512;

/// While it lives, nobody maps a file: of the live tree, or of a snapshot.
class backend::held_back {
public:
    explicit held_back(backend& of, std::optional<std::uint64_t> root = std::nullopt) : of_(of), root_(root)
    {
        const std::lock_guard lock(of_.mutex_);
        if (auto* const count = counted())
            ++*count;
    }
    held_back(const held_back&) = delete;
    ~held_back()
    {
        const std::lock_guard lock(of_.mutex_);
        if (auto* const count = counted())
            --*count;
    }

private:
    // The snapshot may have ended; no other one gets its number.
    std::uint64_t* counted() const noexcept
    {
        if (!root_)
            return &of_.holding_back_;
        const auto found = of_.snapshots_.find(*root_);
        return found == of_.snapshots_.end() ? nullptr : &found->second.holding_back;
    }

    backend& of_;
    const std::optional<std::uint64_t> root_;
};

bool backend::takes_in(const storage::handle& directory) const noexcept { return is_of_snapshots(directory); }

bool backend::has(std::string_view name, const storage::handle& file) const noexcept
{
    const std::lock_guard lock(mutex_);
    const node& place = nodes_.at(snapshots_id);
    const auto found = place.children.find(name);
    if (found == place.children.end())
        return false;
    const auto in = snapshots_.find(found->second.fileid);
    const auto id = id_of(file);
    return id && in != snapshots_.end() && *id >= in->first && *id < in->second.end;
}

const backend::snapshot* backend::snapshot_of(std::uint64_t id) const noexcept
{
    const auto behind = snapshots_.upper_bound(id);
    if (behind == snapshots_.begin())
        return nullptr;
    const snapshot& in = std::prev(behind)->second;
    return id < in.end ? &in : nullptr;
}

std::shared_ptr<const void> backend::hold_back_mappings() { return std::make_shared<held_back>(*this); }

std::shared_ptr<const void> backend::hold_back_mappings_of(std::string_view name)
{
    std::optional<std::uint64_t> root;
    {
        const std::lock_guard lock(mutex_);
        const node& place = nodes_.at(snapshots_id);
        if (const auto found = place.children.find(name); found != place.children.end())
            root = found->second.fileid;
    }
    return root ? std::make_shared<held_back>(*this, root) : nullptr;
}

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
    const file_data::run all{first, (offset + length - 1) / file_data::block_size - first + 1};
    return n.data.last_of_kept(std::span(&all, 1));
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

// Of all that has a name and is in no snapshot. The root comes first.
backend::tree backend::find_tree()
{
    tree out;
    const std::uint64_t most = nodes_.size() - kept_files_;
    out.files.reserve(most);
    out.ids.reserve(most);
    const auto add = [&](std::uint64_t id) {
        if (out.ids.try_emplace(id, next_id_ + out.files.size()).second)
            out.files.emplace_back(id, next_id_ + out.files.size());
    };
    add(root_id);
    for (std::size_t at = 0; at != out.files.size(); ++at) {
        const node& n = nodes_.at(out.files[at].first);
        out.text += n.target.size() + cost_of_xattrs(n) + cost_of_acl(n);
        for (const auto& [name, entry] : n.children) {
            out.text += cost_of(name);
            add(entry.fileid);
        }
    }
    return out;
}

std::unordered_map<std::uint64_t, node> backend::copy_tree(const tree& what)
{
    std::unordered_map<std::uint64_t, node> out;
    out.reserve(what.files.size());
    for (const auto& [id, copy_id] : what.files) {
        const node& from = nodes_.at(id);
        node& to = out.try_emplace(copy_id, memory_).first->second;
        to.is_kept = true;
        to.attrs = from.attrs;
        to.attrs.fileid = copy_id;
        to.data.keep(from.data);
        to.target = from.target;
        to.xattrs = from.xattrs;
        // A file may have lost its newest name with all of that directory.
        if (const auto in = what.ids.find(from.parent); id != root_id && in != what.ids.end())
            to.parent = in->second;
        else
            to.parent = snapshots_id;
        to.place = from.place;
        to.order = from.order;
        to.next_cookie = from.next_cookie;
        for (const auto& [name, entry] : from.children)
            to.children.emplace_hint(to.children.end(), name,
                                     node::child{entry.cookie, what.ids.at(entry.fileid)});
        if (from.acl != nullptr)
            to.acl = std::make_unique<storage::access_list>(*from.acl);
    }
    return out;
}

result<storage::create_result> backend::take_snapshot(const storage::request& r, std::string_view name)
{
    if (const int e = check_name(name))
        return fails(e, "the name of a snapshot: 1 to 255 bytes, without / and NUL");
    if (refuses_changes())
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
    // Before who has files' memory is asked to give it back. Files that are open and have no name count here, too.
    const std::uint64_t most_files = nodes_.size() - kept_files_;
    if (most_files > options_.max_snapshot_files)
        return fails(ENOSPC,
                     "a snapshot: the export has more than snapshot_files files; raise that, or remove some");
    if (most_files > options_.max_files - nodes_.size())
        return fails(ENOSPC, "a snapshot: its files count for max_files; end a snapshot, or raise that");
    if (cost_of(name) + text_bytes_ - kept_text_ > free_bytes())
        return fails(ENOSPC, "a snapshot: its names count for max_bytes; end a snapshot, or raise that");
    if (mapped_ != 0)
        return fails(EAGAIN, "a snapshot while peers have files' memory");
    storage::create_result out;
    out.directory.before = seen(place);
    const std::uint64_t root = next_id_;
    std::uint64_t files = 0, text = 0;
    try {
        const tree what = find_tree();
        files = what.files.size();
        text = what.text;
        for (const auto& [id, copy_id] : what.files) {
            // Bytes behind the end are no part of the file, and would be found in its memory.
            node& n = nodes_.at(id);
            forget_behind_end(n);
            if (n.reached_behind_end)
                return fails(ENOMEM, "a snapshot");
        }
        // Seldom, as it moves all of them.
        if (double(nodes_.size() + files) > nodes_.max_load_factor() * double(nodes_.bucket_count()))
            nodes_.reserve(std::max(nodes_.size() + files, 2 * nodes_.size()));
        std::unordered_map<std::uint64_t, node> made = copy_tree(what);
        const auto added = snapshots_.try_emplace(root, snapshot{root + files, r.who.uid}).first;
        try {
            place.add(name, root);
        } catch (...) {
            snapshots_.erase(added);
            throw;
        }
        nodes_.merge(made);
        nodes_.at(root).place = place.next_cookie - 1;
    } catch (const std::bad_alloc&) {
        return fails(ENOMEM, "a snapshot");
    }
    next_id_ += files;
    text_bytes_ += cost_of(name) + text;
    kept_files_ += files;
    kept_text_ += cost_of(name) + text;
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
    if (refuses_changes())
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
    node& place = nodes_.at(snapshots_id);
    storage::change out;
    out.before = seen(place);
    ended_.insert(snapshots_.extract((*found)->attrs.fileid));
    kept_text_ -= cost_of(name);
    take_name(place, name);
    --place.attrs.links;
    place.touch(now());
    place.attrs.mtime = place.attrs.ctime;
    out.after = seen(place);
    return out;
}

bool backend::has_ended(const node& n) const noexcept
{
    return n.is_kept && n.opens == 0 && n.attrs.fileid != snapshots_id &&
           snapshot_of(n.attrs.fileid) == nullptr;
}

bool backend::free_some() noexcept
{
    const std::lock_guard lock(mutex_);
    if (ended_.empty())
        return false;
    auto some = ended_.extract(ended_.begin());
    std::uint64_t& id = some.key();
    for (unsigned freed = 0; id != some.mapped().end && freed != most_freed_at_once; ++id, ++freed) {
        node& n = nodes_.at(id);
        std::uint64_t names = 0;
        for (const auto& [child, entry] : n.children)
            names += cost_of(child);
        text_bytes_ -= names;
        kept_text_ -= names;
        n.attrs.links = 0;
        release(n);
    }
    if (id != some.mapped().end)
        ended_.insert(std::move(some));
    return !ended_.empty();
}

task<void> backend::free_ended()
{
    while (free_some())
        co_await yield();
}

} // namespace verbena::memfs
