// SPDX-License-Identifier: Apache-2.0
// Handles and the way through names: PUTFH and its like, LOOKUP, LOOKUPP, SECINFO.
#include "operations.hpp"

#include <utility>

namespace verbena::nfs::v4::operations {

task<nfsstat4> putfh(compound& k)
{
    PUTFH4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    object found;
    nfsstat4 status = k.server.handles.find(k.c, args.object, found);
    if (status == nfsstat4::delay) {
        co_await k.server.handles.learn_groups(k.c);
        status = k.server.handles.find(k.c, args.object, found);
    }
    if (status != nfsstat4::ok) // it has no ACCESS (8881 15.2); knfsd says this, too
        co_return status == nfsstat4::access ? nfsstat4::stale : status;
    // Moved, as nearly each COMPOUND comes here: a copy counts another user of the export, and copies the caller's groups.
    k.current = std::move(found);
    k.current_id.reset();
    co_return k.add(PUTFH4res());
}

namespace {

template<class Results>
task<nfsstat4> enter_the_root(compound& k)
{
    object root;
    const nfsstat4 status = co_await k.server.handles.enter_root(k.c, root);
    if (status != nfsstat4::ok)
        co_return status;
    k.set_current(std::move(root));
    co_return k.add(Results());
}

} // namespace

task<nfsstat4> putrootfh(compound& k) { return enter_the_root<PUTROOTFH4res>(k); }

task<nfsstat4> putpubfh(compound& k) { return enter_the_root<PUTPUBFH4res>(k); }

task<nfsstat4> getfh(compound& k)
{
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    file_handle handle;
    if (!k.server.handles.sign(k.current, handle))
        co_return nfsstat4::serverfault;
    GETFH4res res;
    res.object = handle.bytes();
    co_return k.add(res);
}

task<nfsstat4> savefh(compound& k)
{
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    k.saved = k.current;
    k.saved_id = k.current_id;
    co_return k.add(SAVEFH4res());
}

task<nfsstat4> restorefh(compound& k)
{
    if (k.saved.none())
        co_return nfsstat4::nofilehandle;
    k.current = k.saved;
    k.current_id = k.saved_id;
    co_return k.add(RESTOREFH4res());
}

task<nfsstat4> lookup(compound& k)
{
    LOOKUP4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    object found;
    const nfsstat4 status = co_await k.server.handles.find_child(k.c, k.current, args.objname, found);
    if (status != nfsstat4::ok)
        co_return status;
    k.set_current(std::move(found));
    co_return k.add(LOOKUP4res());
}

task<nfsstat4> lookupp(compound& k)
{
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    object found;
    const nfsstat4 status = co_await k.server.handles.find_parent(k.c, k.current, found);
    if (status != nfsstat4::ok)
        co_return status;
    k.set_current(std::move(found));
    co_return k.add(LOOKUPP4res());
}

// Both consume the current handle (8881 2.6.3.1.1.8), but in minor version 0.
task<nfsstat4> secinfo(compound& k)
{
    SECINFO4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    object found;
    const nfsstat4 status = co_await k.server.handles.find_child(k.c, k.current, args.name, found);
    if (status != nfsstat4::ok) // it has no SYMLINK (8881 15.2)
        co_return status == nfsstat4::symlink ? nfsstat4::notdir : status;
    const secinfo4 sys;
    SECINFO4res res;
    res.flavours = std::span(&sys, 1);
    if (k.minor() != 0)
        k.set_current(object());
    co_return k.add(res);
}

task<nfsstat4> secinfo_no_name(compound& k)
{
    SECINFO_NO_NAME4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (args.style != secinfo_style4::current_fh && args.style != secinfo_style4::parent)
        co_return nfsstat4::badxdr; // 8881 15.1.1.1
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    if (args.style == secinfo_style4::parent) {
        object parent;
        const nfsstat4 status = co_await k.server.handles.find_parent(k.c, k.current, parent);
        if (status != nfsstat4::ok)
            co_return status;
    }
    const secinfo4 sys;
    SECINFO_NO_NAME4res res;
    res.flavours = std::span(&sys, 1);
    k.set_current(object());
    co_return k.add(res);
}

} // namespace verbena::nfs::v4::operations
