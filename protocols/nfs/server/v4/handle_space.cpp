// SPDX-License-Identifier: Apache-2.0
#include "handle_space.hpp"
#include "../refused_access.hpp"

#include <verbena/protocols/nfs/server/v4/storage.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace verbena::nfs::v4 {

handle_space::handle_space(const export_table& exports, const handle_key& key, const shard& here,
                           server_counters& counters)
    : exports_(exports), key_(key), counters_(counters), covered_(exports, &here)
{
}

namespace {

// Of an export that is in the list of now.
nfsstat4 enter_as(groups_standing standing, const rpc::call& c, const export_options& exported, object& to)
{
    switch (standing) {
    case groups_standing::known: break;
    case groups_standing::later: return nfsstat4::delay;
    case groups_standing::refused: return nfsstat4::serverfault;
    }
    to.node = nullptr;
    to.exported = exported;
    to.request.client = c.from().address;
    return nfsstat4::ok;
}

} // namespace

nfsstat4 handle_space::set_export(const rpc::call& c, const export_options& exported, object& to)
{
    // Found before a reload took it away: from then on nobody begins anything there.
    if (exports_.by_id(exported.id) == nullptr)
        return nfsstat4::stale;
    return enter_as(groups_.act(exported, c, exports_.groups(), to.request.who), c, exported, to);
}

task<void> handle_space::learn_groups(const rpc::call& c)
{
    // What is put off for another reason has nobody looked up.
    user_groups* const all = exports_.groups();
    if (all != nullptr && groups_.lacks(c.who(), *all))
        co_await groups_.learn(c, *all);
}

void handle_space::refuse(const export_options& exported, access_refusal why, const rpc::peer& from) noexcept
{
    counters_.refused.note(why);
    tell_access(why, exported, from);
}

void handle_space::refuse(const rpc::peer& from)
{
    if (const auto nearest = nearest_refusal(exports_, from, host_))
        refuse(*nearest->exported, nearest->why, from);
}

void handle_space::refuse(const pseudo_node& node, const rpc::peer& from)
{
    const pseudo_node* at = &node;
    while (at->exported == nullptr && !at->children.empty())
        at = at->children.begin()->second;
    if (at->exported != nullptr)
        refuse(*at->exported, check_access(*at->exported, from, host_), from);
}

std::size_t handle_space::visible_in(const pseudo_node& node, const rpc::peer& from)
{
    return static_cast<std::size_t>(std::ranges::count_if(
        node.children, [&](const auto& child) { return is_visible(*child.second, from, host_); }));
}

nfsstat4 handle_space::find(const rpc::call& c, std::span<const std::byte> wire, object& to)
{
    const auto opened = open_handle(key_, wire);
    if (!opened) {
        counters_.refused_handle.add();
        return nfsstat4::badhandle;
    }
    if (opened->export_id == pseudo_tree::export_id) {
        const pseudo_node* const node = tree().by_handle(opened->inner);
        if (node == nullptr)
            return nfsstat4::stale;
        to = object();
        to.node = node;
        if (is_visible(*node, c.from(), host_))
            return nfsstat4::ok;
        refuse(*node, c.from());
        return nfsstat4::access;
    }
    return find_exported(c, opened->export_id, opened->inner, to);
}

nfsstat4 handle_space::find_exported(const rpc::call& c, std::uint32_t export_id, const storage::handle& file,
                                     object& to)
{
    const export_options* const exported = exports_.by_id(export_id);
    if (exported == nullptr) {
        counters_.refused_export.add();
        return nfsstat4::stale;
    }
    // Again for each call: a handle says what a peer may have learnt, not that it may use it.
    if (const auto refusal = check_access(*exported, c.from(), host_); refusal != access_refusal::none) {
        refuse(*exported, refusal, c.from());
        return nfsstat4::access;
    }
    if (covered_.is_settling(*exported))
        return nfsstat4::delay;
    // Whoever has a handle from before looks its name up again, and gets the other export's.
    if (covered_.at(*exported, file) != nullptr) {
        counters_.refused_export.add();
        return nfsstat4::stale;
    }
    const nfsstat4 status =
        enter_as(groups_.act(*exported, c, exports_.groups(), to.request.who), c, *exported, to);
    if (status == nfsstat4::ok)
        to.file = file;
    return status;
}

nfsstat4 handle_space::enter(const rpc::call& c, const pseudo_node& node, object& to)
{
    if (!is_visible(node, c.from(), host_))
        return nfsstat4::noent;
    to = object();
    if (node.exported != nullptr && check_access(*node.exported, c.from(), host_) == access_refusal::none) {
        const nfsstat4 status = set_export(c, *node.exported, to);
        if (status != nfsstat4::ok)
            return status;
        to.file = to.backend().root();
    } else {
        to.node = &node;
    }
    return nfsstat4::ok;
}

task<nfsstat4> handle_space::enter_with_groups(const rpc::call& c, const pseudo_node& node, object& to)
{
    nfsstat4 status = enter(c, node, to);
    if (status == nfsstat4::delay) {
        co_await learn_groups(c);
        status = enter(c, node, to);
    }
    co_return status;
}

bool handle_space::sign(const object& of, file_handle& to) const noexcept
{
    const auto made = of.is_pseudo()
                          ? sign_handle(key_, pseudo_tree::export_id, pseudo_tree::handle_of(*of.node))
                          : sign_handle(key_, of.exported->id, of.file);
    if (made)
        to = *made;
    return made.has_value();
}

const pseudo_node* handle_space::nested_at(const object& directory, std::string_view name) const noexcept
{
    const export_options* const inner =
        directory.is_pseudo() ? nullptr : exports_.nested(*directory.exported, name);
    return inner != nullptr && directory.is_export_root() ? tree().of(*inner) : nullptr;
}

// Who may not use the export gets nothing of what it covers either.
task<nfsstat4> handle_space::enter_nested(const rpc::call& c, const pseudo_node& place, object& to)
{
    const nfsstat4 status = co_await enter_with_groups(c, place, to);
    if (status != nfsstat4::noent)
        co_return status;
    refuse(place, c.from());
    co_return nfsstat4::access;
}

task<const pseudo_node*> handle_space::place_covering(const object& directory,
                                                      const storage::attributes* attrs)
{
    if (attrs != nullptr && attrs->type != storage::file_type::directory)
        co_return nullptr;
    co_await covered_.look(*directory.exported);
    const export_options* const inner = covered_.at(*directory.exported, directory.file);
    co_return inner != nullptr ? tree().of(*inner) : nullptr;
}

namespace {

// A client follows a link itself.
task<nfsstat4> status_of_no_directory(const object& what)
{
    const auto attrs = co_await what.backend().getattr(what.request, what.file);
    co_return attrs && attrs->type == storage::file_type::symlink ? nfsstat4::symlink : nfsstat4::notdir;
}

} // namespace

namespace {

// Nobody has an export there.
void tell_unknown(const pseudo_node& directory, std::string_view name, const rpc::peer& from)
{
    std::string path(name);
    for (const pseudo_node* at = &directory; at != nullptr; at = at->parent)
        path.insert(0, at->parent == nullptr ? "/" : std::string(at->name) + '/');
    tell_refusal(refused::export_unknown, {.peer = from.address, .object = path});
}

} // namespace

task<nfsstat4> handle_space::find_child(const rpc::call& c, const object& directory, std::string_view name,
                                        object& to, std::optional<storage::attributes>* searched)
{
    if (const nfsstat4 status = check_name(name); status != nfsstat4::ok)
        co_return status;
    if (directory.is_pseudo()) {
        const auto child = directory.node->children.find(name);
        if (child == directory.node->children.end()) {
            // An export may be there that the peer sees only as the way to another one.
            if (const export_options* const here = directory.node->exported; here != nullptr)
                refuse(*here, check_access(*here, c.from(), host_), c.from());
            else
                tell_unknown(*directory.node, name, c.from());
            co_return nfsstat4::noent;
        }
        const nfsstat4 status = co_await enter_with_groups(c, *child->second, to);
        if (status == nfsstat4::noent) // a listing only leaves it out
            refuse(*child->second, c.from());
        co_return status;
    }
    // An export's own directories are not hidden by what only leads to another export.
    const pseudo_node* const place = nested_at(directory, name);
    if (place != nullptr) {
        const nfsstat4 status = co_await enter_nested(c, *place, to);
        if (status != nfsstat4::access)
            co_return status;
    }
    const auto found = co_await directory.backend().lookup(directory.request, directory.file, name);
    if (found && place != nullptr)
        co_return nfsstat4::access;
    if (found) {
        if (searched != nullptr)
            *searched = found->directory;
        object there = directory.other(found->found.handle, found->found.attrs);
        if (const auto& attrs = found->found.attrs; exports_.has_nested(*there.exported)) {
            const pseudo_node* const covering = co_await place_covering(there, attrs ? &*attrs : nullptr);
            if (covering != nullptr)
                co_return co_await enter_nested(c, *covering, to);
        }
        to = std::move(there);
        co_return nfsstat4::ok;
    }
    const nfsstat4 status = status_of_storage(found.error());
    if (status == nfsstat4::notdir)
        co_return co_await status_of_no_directory(directory);
    co_return status;
}

task<nfsstat4> handle_space::find_parent(const rpc::call& c, const object& of, object& to)
{
    const pseudo_node* const place = of.is_pseudo()        ? of.node
                                     : of.is_export_root() ? tree().of(*of.exported)
                                                           : nullptr;
    if (place != nullptr) {
        if (place->parent == nullptr)
            co_return nfsstat4::noent;
        if (!of.is_pseudo() && place->parent->exported == nullptr) {
            const nfsstat4 status = co_await find_parent_of_export(c, *place, to);
            if (status == nfsstat4::ok || status == nfsstat4::delay)
                co_return status;
        }
        co_return co_await enter_with_groups(c, *place->parent, to);
    }
    const auto found = co_await of.backend().lookup(of.request, of.file, "..");
    if (found) {
        object there = of.other(found->found.handle, found->found.attrs);
        if (const auto& attrs = found->found.attrs; exports_.has_nested(*there.exported)) {
            const pseudo_node* const covering = co_await place_covering(there, attrs ? &*attrs : nullptr);
            if (covering != nullptr) // what has a handle from before stands beneath it
                co_return nfsstat4::stale;
        }
        to = std::move(there);
        co_return nfsstat4::ok;
    }
    const nfsstat4 status = status_of_storage(found.error());
    if (status == nfsstat4::notdir)
        co_return co_await status_of_no_directory(of);
    co_return status;
}

// The directory of the export around it by which LOOKUP leads here.
task<nfsstat4> handle_space::find_parent_of_export(const rpc::call& c, const pseudo_node& place, object& to)
{
    const export_table::nest* const nest = exports_.nest_around(*place.exported);
    if (nest == nullptr || check_access(*nest->outer, c.from(), host_) != access_refusal::none)
        co_return nfsstat4::noent;
    object outer;
    nfsstat4 entered = set_export(c, *nest->outer, outer);
    if (entered == nfsstat4::delay) {
        co_await learn_groups(c);
        entered = set_export(c, *nest->outer, outer);
    }
    if (entered != nfsstat4::ok)
        co_return entered;
    outer.file = outer.backend().root();
    std::string_view rest = nest->path.substr(0, nest->path.rfind('/'));
    for (auto name = next_component(rest); !name.empty(); name = next_component(rest)) {
        const auto found = co_await outer.backend().lookup(outer.request, outer.file, name);
        if (!found)
            co_return status_of_storage(found.error());
        outer.file = found->found.handle;
    }
    to = outer;
    co_return nfsstat4::ok;
}

// The other export is not asked again once it is known: were its disk to hang, who uses this one would wait for it.
task<void> handle_space::look_around(const object& root)
{
    const export_table::nest* const nest = exports_.nest_around(*root.exported);
    if (nest != nullptr && covered_number(root) == 0)
        co_await covered_.look(*nest->outer);
}

bool handle_space::may_lead_on(const object& directory) const noexcept
{
    return directory.is_export_root() || covered_.is_above(*directory.exported, directory.file);
}

const pseudo_node* handle_space::place_of_entry(const object& directory,
                                                const storage::directory_entry& entry) const noexcept
{
    const pseudo_node* const place = nested_at(directory, entry.name);
    const export_options* const covering =
        place == nullptr && entry.handle ? covered_.at(*directory.exported, *entry.handle) : nullptr;
    return covering != nullptr ? tree().of(*covering) : place;
}

task<nfsstat4> handle_space::may_change(const object& directory, std::string_view name)
{
    if (nested_at(directory, name) != nullptr)
        co_return nfsstat4::access;
    const export_options& outer = *directory.exported;
    if (!exports_.has_nested(outer))
        co_return nfsstat4::ok;
    co_await covered_.look(outer);
    if (!covered_.is_above(outer, directory.file))
        co_return nfsstat4::ok;
    const auto found = co_await directory.backend().lookup(directory.request, directory.file, name);
    const bool stays = found && covered_.must_stay(outer, found->found.handle);
    co_return stays ? nfsstat4::access : nfsstat4::ok;
}

} // namespace verbena::nfs::v4
