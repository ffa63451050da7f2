// SPDX-License-Identifier: Apache-2.0
// What changes directories: CREATE, REMOVE, RENAME, LINK; and READDIR.
#include "../compound.hpp"

#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include <unistd.h>

namespace verbena::nfs::v4 {

namespace {

constexpr std::size_t max_link_text = 4096;
// What stands around a listing in the reply.
constexpr std::size_t around_listing = 256;

} // namespace

task<nfsstat4> server::create(compound& k)
{
    CREATE4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = k.need_file(purpose::changing);
    if (status == nfsstat4::ok)
        status = check_name(args.objname);
    attributes wanted;
    if (status == nfsstat4::ok)
        status = decode_settable(args.createattrs, supported(k, k.current), settable_at_creation, wanted);
    storage::set_attributes set;
    storage::access_list acl;
    // It has no FBIG (8881 15.2).
    if (status == nfsstat4::ok && wanted.present.test(attribute::size) && wanted.size > last_offset)
        status = nfsstat4::inval;
    if (status == nfsstat4::ok)
        status = from_settable(wanted, set, acl);
    if (status == nfsstat4::badowner && commons_.users != nullptr) {
        task<nfsstat4> naming = named_settable(k, wanted, set, acl);
        status = co_await naming;
    }
    if (status == nfsstat4::ok)
        status = k.check_room<CREATE4res>();
    if (status != nfsstat4::ok)
        co_return status;
    const object directory = k.current;
    storage::file_backend& files = directory.backend();
    const auto device = [&](storage::file_type type) {
        return files.mknod(directory.request, directory.file, args.objname, type,
                           args.objtype.devdata.specdata1, args.objtype.devdata.specdata2, set);
    };
    std::string text;
    result<storage::create_result> made = error(std::errc::invalid_argument);
    switch (args.objtype.type) {
    case nfs_ftype4::dir:
        made = co_await files.mkdir(directory.request, directory.file, args.objname, set);
        break;
    case nfs_ftype4::lnk: {
        const auto& data = args.objtype.linkdata;
        if (data.length > max_link_text)
            co_return nfsstat4::nametoolong;
        rpc::payload pulled;
        std::span<const std::byte> here = data.inline_bytes;
        std::span<const std::span<const std::byte>> pieces(&here, 1);
        if (data.external) {
            auto got = co_await k.c.pull(data);
            if (!got)
                co_return k.not_pulled(got.error());
            pulled = std::move(*got);
            pieces = pulled.pieces();
        }
        for (const auto piece : pieces)
            text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        if (text.empty() || text.find('\0') != text.npos)
            co_return nfsstat4::inval;
        made = co_await files.symlink(directory.request, directory.file, args.objname, text, set);
        break;
    }
    case nfs_ftype4::blk: made = co_await device(storage::file_type::block_device); break;
    case nfs_ftype4::chr: made = co_await device(storage::file_type::character_device); break;
    case nfs_ftype4::sock: made = co_await device(storage::file_type::socket); break;
    case nfs_ftype4::fifo: made = co_await device(storage::file_type::fifo); break;
    default: co_return nfsstat4::badtype;
    }
    if (!made)
        co_return status_of_setting(made.error(), set);
    object found = directory;
    found.file = made->made.handle;
    k.set_current(found);
    CREATE4res res;
    res.cinfo = to_change_info(made->directory);
    res.attrset = set_at_creation(args.createattrs.attrmask, set, made->made.attrs);
    co_return k.add(res);
}

task<nfsstat4> server::remove(compound& k)
{
    REMOVE4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = k.need_file(purpose::changing);
    if (status == nfsstat4::ok)
        status = check_name(args.target);
    if (status == nfsstat4::ok)
        status = co_await may_change(k.current, args.target);
    if (status == nfsstat4::ok)
        status = k.check_room<REMOVE4res>();
    // The file may be one that a client has still to reclaim.
    if (status == nfsstat4::ok && commons_.state.is_in_grace())
        status = nfsstat4::grace;
    files::change_hold change;
    if (status == nfsstat4::ok && !commons_.state.passes_unseen(change, here_))
        status = co_await make_way_to(k, k.current, args.target, files::operation::remove, change);
    if (status != nfsstat4::ok)
        co_return status;
    const object& o = k.current;
    auto done = co_await o.backend().remove(o.request, o.file, args.target);
    // unlink(2) says EISDIR of a directory on Linux, and POSIX has it say EPERM.
    if (!done && (done.error().errno_value() == EISDIR || done.error().errno_value() == EPERM)) {
        auto again = co_await o.backend().rmdir(o.request, o.file, args.target);
        if (again || again.error().errno_value() != ENOTDIR)
            done = std::move(again);
    }
    if (!done)
        co_return status_of_storage(done.error());
    REMOVE4res res;
    res.cinfo = to_change_info(*done);
    co_return k.add(res);
}

// Moved elsewhere, what another export covers would be reached by this one's rules.
task<nfsstat4> server::may_change(const object& directory, std::string_view name)
{
    if (nested_at(directory, name) != nullptr)
        co_return nfsstat4::access;
    const export_options& outer = *directory.exported;
    if (!commons_.exports.has_nested(outer))
        co_return nfsstat4::ok;
    co_await covered_.look(outer);
    if (!covered_.is_above(outer, directory.file))
        co_return nfsstat4::ok;
    const auto found = co_await directory.backend().lookup(directory.request, directory.file, name);
    const bool stays = found && covered_.must_stay(outer, found->found.handle);
    co_return stays ? nfsstat4::access : nfsstat4::ok;
}

// Of RENAME and LINK: the saved handle and the current one.
nfsstat4 server::need_both(const compound& k)
{
    nfsstat4 status = k.saved.none() ? nfsstat4::nofilehandle : k.need_file(purpose::changing);
    if (status == nfsstat4::ok)
        status = compound::check_file(k.saved, purpose::changing);
    // Also where both lie on one file system: each export has its own rules of who may do what.
    if (status == nfsstat4::ok && k.saved.exported != k.current.exported)
        status = nfsstat4::xdev;
    return status;
}

task<nfsstat4> server::rename(compound& k)
{
    RENAME4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = need_both(k);
    if (status == nfsstat4::ok)
        status = check_name(args.oldname);
    if (status == nfsstat4::ok)
        status = check_name(args.newname);
    if (status == nfsstat4::ok)
        status = co_await may_change(k.saved, args.oldname);
    if (status == nfsstat4::ok)
        status = co_await may_change(k.current, args.newname);
    if (status == nfsstat4::ok)
        status = k.check_room<RENAME4res>();
    // The file may be one that a client has still to reclaim.
    if (status == nfsstat4::ok && commons_.state.is_in_grace())
        status = nfsstat4::grace;
    files::change_hold source, overwritten;
    if (status == nfsstat4::ok && !commons_.state.passes_unseen(source, here_))
        status = co_await make_way_to(k, k.saved, args.oldname, files::operation::rename, source);
    if (status == nfsstat4::ok && !commons_.state.passes_unseen(overwritten, here_))
        status = co_await make_way_to(k, k.current, args.newname, files::operation::remove, overwritten);
    if (status != nfsstat4::ok)
        co_return status;
    const object& o = k.saved;
    const auto done =
        co_await o.backend().rename(o.request, o.file, args.oldname, k.current.file, args.newname);
    if (!done) {
        status = status_of_storage(done.error());
        co_return co_await status_of_renaming(k, status);
    }
    RENAME4res res;
    res.source_cinfo = to_change_info(done->from);
    res.target_cinfo = to_change_info(done->to);
    co_return k.add(res);
}

// A target that is no directory where the source is one, or the other way, is EXIST (8881 18.26.3). So is a directory
// with something in it, by the RFC, but its NOTEMPTY stays: RENAME has that, too (15.2), knfsd says so, and programs
// get what rename(2) on a local disk gives.
task<nfsstat4> server::status_of_renaming(compound& k, nfsstat4 status)
{
    if (status == nfsstat4::isdir)
        co_return nfsstat4::exist;
    if (status != nfsstat4::notdir)
        co_return status;
    // Unless it is a handle that is none.
    const auto from = co_await k.saved.backend().getattr(k.saved.request, k.saved.file);
    const auto to = co_await k.current.backend().getattr(k.current.request, k.current.file);
    const bool both = from && to && from->type == storage::file_type::directory &&
                      to->type == storage::file_type::directory;
    co_return both ? nfsstat4::exist : status;
}

task<nfsstat4> server::link(compound& k)
{
    LINK4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = need_both(k);
    if (status == nfsstat4::ok)
        status = check_name(args.newname);
    if (status == nfsstat4::ok)
        status = k.check_room<LINK4res>();
    files::change_hold change;
    if (status == nfsstat4::ok) {
        change.begin(commons_.state.changes(), k.saved.key());
        if (commons_.state.has_state(k.saved.key()))
            status = co_await make_way(k, k.saved, files::operation::link);
    }
    if (status != nfsstat4::ok)
        co_return status;
    const object& o = k.saved;
    const auto done = co_await o.backend().link(o.request, o.file, k.current.file, args.newname);
    if (!done) {
        status = status_of_storage(done.error());
        // From minor version 1 on LINK has no NOENT: a file without a name is on its way out. It never has PERM, which
        // file systems without links say, and the kernel to who may not link to others' files.
        const bool has_status = status == nfsstat4::noent ? k.minor() == 0 : status != nfsstat4::perm;
        if (has_status)
            co_return status;
        const auto attrs = co_await o.backend().getattr(o.request, o.file);
        if (status == nfsstat4::noent)
            co_return !attrs || attrs->links == 0 ? nfsstat4::stale : status;
        if (!attrs)
            co_return status_of_storage(attrs.error());
        if (attrs->type == storage::file_type::directory)
            co_return nfsstat4::isdir;
        co_return o.backend().info().links ? nfsstat4::access : nfsstat4::notsupp;
    }
    LINK4res res;
    res.cinfo = to_change_info(done->directory);
    co_return k.add(res);
}

// False where it can't be looked at and `said`, which is asked for, has no place to tell that.
bool server::set_entry(const compound& k, const storage::directory_entry& e, bitmap4& said,
                       object_values& out) const
{
    const bool names_alone = said.is_subset_of(of_names);
    if (e.attrs && !names_alone) {
        object entry = k.current;
        entry.file = e.handle ? *e.handle : storage::handle();
        set_constants(k, entry, out);
        set_file(entry, *e.attrs, out);
        file_handle handle;
        if (said.test(attribute::filehandle) && e.handle && sign(entry, handle))
            out.set_handle(handle);
        return true;
    }
    out.all.fileid = out.all.mounted_on_fileid = e.fileid;
    out.all.rdattr_error = names_alone ? nfsstat4::ok : nfsstat4::access;
    out.all.present = of_names;
    if (names_alone)
        return true;
    // It can't be looked at, as where the caller may list the directory and not search it: what went meanwhile is
    // left out.
    const bool told = said.test(attribute::rdattr_error);
    said = said & of_names;
    return told;
}

// Of entries that could not be looked at, for who asked for no place to be told so (8881 18.23.3).
task<nfsstat4> server::why_unseen(const object& directory)
{
    const auto allowed = co_await directory.backend().access(directory.request, directory.file, X_OK);
    co_return allowed && (*allowed & X_OK) == 0 ? nfsstat4::access : nfsstat4::io;
}

/// Entries go straight from the back end into the reply.
class server::entry_sink final : public storage::directory_sink {
public:
    /// `may_learn`: owners whose names this shard does not know are kept in unknown().
    entry_sink(server& s, compound& k, readdir_writer& writer, const bitmap4& wanted, bool may_learn)
        : server_(s),
          k_(k),
          writer_(writer),
          wanted_(wanted),
          says_names_(s.says_names(wanted)),
          may_learn_(may_learn)
    {
    }
    bool take(const storage::directory_entry& e) override
    {
        if (e.name == "." || e.name == "..")
            return true;
        object_values values;
        bitmap4 said = wanted_ & supported(k_, k_.current);
        if (!server_.set_entry(k_, e, said, values)) {
            failed_ = nfsstat4::io;
            return false;
        }
        if (says_names_)
            server_.say_known_names(said, values, may_learn_ ? &unknown_ : nullptr);
        return writer_.add(to_wire_cookie(e.cookie), e.name, said, values.all);
    }
    nfsstat4 failed() const noexcept { return failed_; }
    /// Owners that were told as numbers, since this shard does not know their names.
    std::vector<account>& unknown() noexcept { return unknown_; }

private:
    server& server_;
    compound& k_;
    readdir_writer& writer_;
    const bitmap4& wanted_;
    const bool says_names_;
    const bool may_learn_;
    std::vector<account> unknown_;
    nfsstat4 failed_ = nfsstat4::ok;
};

task<nfsstat4> server::readdir(compound& k)
{
    READDIR4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    if (!(args.attr_request & write_only_attributes & attributes_of_minor(k.minor())).none())
        co_return nfsstat4::inval;
    std::uint64_t cookie = 0;
    const std::uint64_t verifier = xdr::load_u64(args.cookieverf.data());
    if (!from_wire_cookie(args.cookie, cookie) || (args.cookie == 0 && verifier != 0))
        co_return nfsstat4::bad_cookie;
    args.maxcount = std::min(args.maxcount, max_listing);
    k.c.expect_results(k.attached_bytes() + args.maxcount + around_listing);
    if (!co_await k.c.reserve_results(args.maxcount + around_listing))
        co_return nfsstat4::delay;
    if (k.current.is_pseudo()) {
        task<nfsstat4> listing = list_pseudo(k, args);
        co_return co_await listing;
    }
    const bitmap4 known = supported(k, k.current);
    // An entry where another export begins has more of its own than the number of the directory that it covers.
    const bool has_nests = commons_.exports.has_nested(*k.current.exported);
    if (has_nests)
        co_await covered_.look(*k.current.exported);
    const bool leads_on =
        has_nests && (k.current.is_export_root() || covered_.is_above(*k.current.exported, k.current.file)) &&
        !args.attr_request.is_subset_of({attribute::mounted_on_fileid, attribute::rdattr_error});
    if (leads_on || (args.attr_request & known).test(attribute::acl)) {
        task<nfsstat4> listing = list_one_by_one(k, args, cookie, verifier);
        co_return co_await listing;
    }
    const std::size_t room = k.results.room();
    if (room < least_listing)
        co_return k.too_big();
    const bool plus = !(args.attr_request & known).is_subset_of(of_names);
    const object& o = k.current;
    // An entry can't wait for its owners' names: a page with some that this shard does not know is made again when it does.
    bool may_learn = says_names(args.attr_request);
    for (;;) {
        xdr::encoder& out = k.results.begin(nfs_opnum4::readdir);
        readdir_writer writer(out, args, {}, room - 8);
        const std::size_t verifier_at = out.size() - 8;
        entry_sink sink(*this, k, writer, args.attr_request, may_learn);
        const auto done = co_await o.backend().readdir(o.request, o.file, cookie, verifier, plus, sink);
        if (done && !sink.unknown().empty()) {
            k.results.undo();
            co_await learn_names(k, sink.unknown());
            may_learn = false;
            continue;
        }
        // Of an entry that could not be told the back end knows only that it was not taken.
        nfsstat4 status = sink.failed();
        if (status != nfsstat4::ok)
            status = co_await why_unseen(o);
        else if (!done)
            status = status_of_listing(done.error());
        else if (!writer.fits() || (writer.entries() == 0 && !done->end))
            status = args.maxcount > room ? k.too_big() : nfsstat4::toosmall;
        if (status != nfsstat4::ok) {
            k.results.undo();
            co_return status;
        }
        out.patch_u32(verifier_at, static_cast<std::uint32_t>(done->verifier >> 32));
        out.patch_u32(verifier_at + 4, static_cast<std::uint32_t>(done->verifier));
        writer.finish(done->end);
        co_return k.results.end() ? nfsstat4::ok : k.too_big();
    }
}

// An entry is what begins at its place, with that one's attributes. An export that can't be reached does not spoil the listing.
task<nfsstat4> server::list_pseudo(compound& k, const READDIR4args& args)
{
    const std::size_t room = k.results.room();
    if (room < least_listing)
        co_return k.too_big();
    if (args.cookieverf != verifier4{}) // it always is that one
        co_return nfsstat4::not_same;
    readdir_writer writer(k.results.begin(nfs_opnum4::readdir), args, {}, room - 8);
    std::uint64_t cookie = 2;
    bool all = true;
    const time_point until = roots_until();
    bool has_asked = false;
    for (const auto& [name, child] : k.current.node->children) {
        object entry;
        nfsstat4 status = enter(k.c, *child, entry);
        if (status == nfsstat4::delay && !std::exchange(has_asked, true)) {
            co_await learn_groups(k.c);
            status = enter(k.c, *child, entry);
        }
        // Those that the peer may see are counted alone.
        if (status == nfsstat4::noent || ++cookie <= args.cookie)
            continue;
        object_values values;
        bitmap4 said = args.attr_request;
        if (status == nfsstat4::ok) {
            said = said & supported(k, entry);
            task<nfsstat4> looking = values_of_root(k, entry, said, values, until);
            status = co_await looking;
        }
        if (status != nfsstat4::ok) {
            values.all.present = of_names;
            values.all.fileid = values.all.mounted_on_fileid = child->fileid;
            values.all.rdattr_error = status;
            said = said & of_names;
        }
        if (!writer.add(cookie, name, said, values.all)) {
            all = false;
            break;
        }
    }
    if (!writer.fits() || (writer.entries() == 0 && !all)) {
        k.results.undo();
        co_return nfsstat4::toosmall;
    }
    writer.finish(all);
    co_return k.results.end() ? nfsstat4::ok : k.too_big();
}

} // namespace verbena::nfs::v4
