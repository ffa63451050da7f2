// SPDX-License-Identifier: Apache-2.0
// Handles and the way through names: PUTFH and its like, LOOKUP, LOOKUPP, SECINFO.
#include "../compound.hpp"

namespace verbena::nfs::v4 {

nfsstat4 server::set_export(const rpc::call& c, const export_options& exported, object& to)
{
    switch (groups_.act(exported, c, commons_.exports.groups(), to.request.who)) {
    case groups_standing::known: break;
    case groups_standing::later: return nfsstat4::delay;
    case groups_standing::refused: return nfsstat4::serverfault;
    }
    to.node = nullptr;
    to.exported = &exported;
    to.request.client = c.from().address;
    return nfsstat4::ok;
}

task<void> server::learn_groups(const rpc::call& c)
{
    task<void> learning = groups_.learn(c, *commons_.exports.groups());
    co_await learning;
}

nfsstat4 server::find(const rpc::call& c, std::span<const std::byte> wire, object& to)
{
    const auto opened = open_handle(commons_.key, wire);
    if (!opened) {
        counters_.refused_handle.add();
        return nfsstat4::badhandle;
    }
    if (opened->export_id == pseudo_tree::export_id) {
        const pseudo_node* const node = commons_.tree.by_handle(opened->inner);
        if (node == nullptr)
            return nfsstat4::stale;
        to = object();
        to.node = node;
        return is_visible(*node, c.from(), host_) ? nfsstat4::ok : nfsstat4::access;
    }
    return find_exported(c, opened->export_id, opened->inner, to);
}

nfsstat4 server::find_exported(const rpc::call& c, std::uint32_t export_id, const storage::handle& file,
                               object& to)
{
    const export_options* const exported = commons_.exports.by_id(export_id);
    if (exported == nullptr) {
        counters_.refused_export.add();
        return nfsstat4::stale;
    }
    // Again for each call: a handle says what a peer may have learnt, not that it may use it.
    if (const auto refusal = check_access(*exported, c.from(), host_); refusal != access_refusal::none) {
        counters_.refused.note(refusal);
        return nfsstat4::access;
    }
    // Whoever has a handle from before looks its name up again, and gets the other export's.
    if (covered_.at(*exported, file) != nullptr) {
        counters_.refused_export.add();
        return nfsstat4::stale;
    }
    const nfsstat4 status = set_export(c, *exported, to);
    if (status == nfsstat4::ok)
        to.file = file;
    return status;
}

// Into what stands at a place of the pseudo file system: the export that begins there, if the peer may use it.
nfsstat4 server::enter(const rpc::call& c, const pseudo_node& node, object& to)
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

task<nfsstat4> server::enter_with_groups(const rpc::call& c, const pseudo_node& node, object& to)
{
    nfsstat4 status = enter(c, node, to);
    if (status == nfsstat4::delay) {
        co_await learn_groups(c);
        status = enter(c, node, to);
    }
    co_return status;
}

bool server::sign(const object& of, file_handle& to) const noexcept
{
    const auto made =
        of.is_pseudo() ? sign_handle(commons_.key, pseudo_tree::export_id, pseudo_tree::handle_of(*of.node))
                       : sign_handle(commons_.key, of.exported->id, of.file);
    if (made)
        to = *made;
    return made.has_value();
}

const pseudo_node* server::nested_at(const object& directory, std::string_view name) const noexcept
{
    const export_options* const inner =
        directory.is_pseudo() ? nullptr : commons_.exports.nested(*directory.exported, name);
    return inner != nullptr && directory.is_export_root() ? commons_.tree.of(*inner) : nullptr;
}

// Who may not use the export gets nothing of what it covers either.
task<nfsstat4> server::enter_nested(const rpc::call& c, const pseudo_node& place, object& to)
{
    const nfsstat4 status = co_await enter_with_groups(c, place, to);
    if (status != nfsstat4::noent)
        co_return status;
    counters_.refused.note(check_access(*place.exported, c.from(), host_));
    co_return nfsstat4::access;
}

task<const pseudo_node*> server::place_covering(const object& directory, const storage::attributes* attrs)
{
    if (attrs != nullptr && attrs->type != storage::file_type::directory)
        co_return nullptr;
    co_await covered_.look(*directory.exported);
    const export_options* const inner = covered_.at(*directory.exported, directory.file);
    co_return inner != nullptr ? commons_.tree.of(*inner) : nullptr;
}

task<nfsstat4> server::find_child(compound& k, const object& directory, std::string_view name, object& to)
{
    if (const nfsstat4 status = check_name(name); status != nfsstat4::ok)
        co_return status;
    if (directory.is_pseudo()) {
        const auto child = directory.node->children.find(name);
        if (child == directory.node->children.end())
            co_return nfsstat4::noent;
        co_return co_await enter_with_groups(k.c, *child->second, to);
    }
    // An export's own directories are not hidden by what only leads to another export.
    const pseudo_node* const place = nested_at(directory, name);
    if (place != nullptr) {
        const nfsstat4 status = co_await enter_nested(k.c, *place, to);
        if (status != nfsstat4::access)
            co_return status;
    }
    const auto found = co_await directory.backend().lookup(directory.request, directory.file, name);
    if (found && place != nullptr)
        co_return nfsstat4::access;
    if (found) {
        object there = directory;
        there.file = found->found.handle;
        if (const auto& attrs = found->found.attrs; commons_.exports.has_nested(*there.exported)) {
            const pseudo_node* const covering = co_await place_covering(there, attrs ? &*attrs : nullptr);
            if (covering != nullptr)
                co_return co_await enter_nested(k.c, *covering, to);
        }
        to = there;
        co_return nfsstat4::ok;
    }
    const nfsstat4 status = status_of_storage(found.error());
    if (status != nfsstat4::notdir)
        co_return status;
    const auto attrs = co_await directory.backend().getattr(directory.request, directory.file);
    if (attrs && attrs->type == storage::file_type::symlink)
        co_return nfsstat4::symlink;
    co_return status;
}

task<nfsstat4> server::find_parent(compound& k, const object& of, object& to)
{
    const pseudo_node* const place = of.is_pseudo()        ? of.node
                                     : of.is_export_root() ? commons_.tree.of(*of.exported)
                                                           : nullptr;
    if (place != nullptr) {
        if (place->parent == nullptr)
            co_return nfsstat4::noent;
        if (!of.is_pseudo() && place->parent->exported == nullptr) {
            const nfsstat4 status = co_await find_parent_of_export(k, *place, to);
            if (status == nfsstat4::ok || status == nfsstat4::delay)
                co_return status;
        }
        co_return co_await enter_with_groups(k.c, *place->parent, to);
    }
    const auto found = co_await of.backend().lookup(of.request, of.file, "..");
    if (found) {
        object there = of;
        there.file = found->found.handle;
        if (const auto& attrs = found->found.attrs; commons_.exports.has_nested(*there.exported)) {
            const pseudo_node* const covering = co_await place_covering(there, attrs ? &*attrs : nullptr);
            if (covering != nullptr) // what has a handle from before stands beneath it
                co_return nfsstat4::stale;
        }
        to = there;
        co_return nfsstat4::ok;
    }
    const nfsstat4 status = status_of_storage(found.error());
    if (status != nfsstat4::notdir)
        co_return status;
    const auto attrs = co_await of.backend().getattr(of.request, of.file);
    if (attrs && attrs->type == storage::file_type::symlink)
        co_return nfsstat4::symlink;
    co_return status;
}

// The directory of the export around it by which LOOKUP leads here.
task<nfsstat4> server::find_parent_of_export(compound& k, const pseudo_node& place, object& to)
{
    const export_table::nest* const nest = commons_.exports.nest_around(*place.exported);
    if (nest == nullptr || check_access(*nest->outer, k.c.from(), host_) != access_refusal::none)
        co_return nfsstat4::noent;
    object outer;
    nfsstat4 entered = set_export(k.c, *nest->outer, outer);
    if (entered == nfsstat4::delay) {
        co_await learn_groups(k.c);
        entered = set_export(k.c, *nest->outer, outer);
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

task<nfsstat4> server::putfh(compound& k)
{
    PUTFH4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    object found;
    nfsstat4 status = find(k.c, args.object, found);
    if (status == nfsstat4::delay) {
        co_await learn_groups(k.c);
        status = find(k.c, args.object, found);
    }
    if (status != nfsstat4::ok) // it has no ACCESS (8881 15.2); knfsd says this, too
        co_return status == nfsstat4::access ? nfsstat4::stale : status;
    k.set_current(found);
    co_return k.add(PUTFH4res());
}

task<nfsstat4> server::put_root(compound& k, nfs_opnum4 as)
{
    object root;
    const nfsstat4 status = co_await enter_with_groups(k.c, commons_.tree.root(), root);
    if (status != nfsstat4::ok)
        co_return status;
    k.set_current(root);
    co_return as == nfs_opnum4::putrootfh ? k.add(PUTROOTFH4res()) : k.add(PUTPUBFH4res());
}

task<nfsstat4> server::getfh(compound& k)
{
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    file_handle handle;
    if (!sign(k.current, handle))
        co_return nfsstat4::serverfault;
    GETFH4res res;
    res.object = handle.bytes();
    co_return k.add(res);
}

task<nfsstat4> server::savefh(compound& k)
{
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    k.saved = k.current;
    k.saved_id = k.current_id;
    co_return k.add(SAVEFH4res());
}

task<nfsstat4> server::restorefh(compound& k)
{
    if (k.saved.none())
        co_return nfsstat4::nofilehandle;
    k.current = k.saved;
    k.current_id = k.saved_id;
    co_return k.add(RESTOREFH4res());
}

task<nfsstat4> server::lookup(compound& k)
{
    LOOKUP4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    object found;
    const nfsstat4 status = co_await find_child(k, k.current, args.objname, found);
    if (status != nfsstat4::ok)
        co_return status;
    k.set_current(found);
    co_return k.add(LOOKUP4res());
}

task<nfsstat4> server::lookupp(compound& k)
{
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    object found;
    const nfsstat4 status = co_await find_parent(k, k.current, found);
    if (status != nfsstat4::ok)
        co_return status;
    k.set_current(found);
    co_return k.add(LOOKUPP4res());
}

// Both consume the current handle (8881 2.6.3.1.1.8), but in minor version 0.
task<nfsstat4> server::secinfo(compound& k)
{
    SECINFO4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    object found;
    const nfsstat4 status = co_await find_child(k, k.current, args.name, found);
    if (status != nfsstat4::ok) // it has no SYMLINK (8881 15.2)
        co_return status == nfsstat4::symlink ? nfsstat4::notdir : status;
    const secinfo4 sys;
    SECINFO4res res;
    res.flavours = std::span(&sys, 1);
    if (k.minor() != 0)
        k.set_current(object());
    co_return k.add(res);
}

task<nfsstat4> server::secinfo_no_name(compound& k)
{
    SECINFO_NO_NAME4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    if (args.style != secinfo_style4::current_fh && args.style != secinfo_style4::parent)
        co_return nfsstat4::inval;
    if (args.style == secinfo_style4::parent) {
        object parent;
        const nfsstat4 status = co_await find_parent(k, k.current, parent);
        if (status != nfsstat4::ok)
            co_return status;
    }
    const secinfo4 sys;
    SECINFO_NO_NAME4res res;
    res.flavours = std::span(&sys, 1);
    k.set_current(object());
    co_return k.add(res);
}

} // namespace verbena::nfs::v4
