// SPDX-License-Identifier: Apache-2.0
// GETATTR, SETATTR, ACCESS, VERIFY, NVERIFY.
#include "../compounds.hpp"
#include "operations.hpp"
#include "steps.hpp"

#include <verbena/protocols/nfs/server/v3/storage.hpp>
#include <verbena/protocols/nfs/server/v4/storage_acl.hpp>

#include <array>
#include <optional>
#include <unistd.h>
#include <vector>

namespace verbena::nfs::v4::operations {

namespace {

// What may stand beside an ACL in a GETATTR, and what the operations behind it may need.
constexpr std::size_t rest_of_acl = 4096;

// What a client that has a write delegation may have changed without our knowing.
constexpr bitmap4 of_content = {attribute::change, attribute::size, attribute::space_used,
                                attribute::time_metadata, attribute::time_modify};

// Whether a client that has a write delegation of the current file may know better.
bool asks_a_writer(const compound& k, const bitmap4& wanted) noexcept
{
    const object& o = k.current;
    return !o.is_pseudo() && !(wanted & of_content).none() &&
           k.server.state.may_have_writer(o.exported->space, o.file);
}

task<nfsstat4> values_of_a_writer(compound& k, bitmap4 wanted, object_values& out)
{
    const object& o = k.current;
    // First what the server has: a size that the holder said never goes with a change attribute from behind its
    // answer.
    std::optional<storage::attributes> before;
    if (const storage::attributes* const learnt = k.just_learnt()) {
        before = *learnt;
    } else {
        const auto attrs = co_await o.backend().getattr(o.request, o.file);
        if (!attrs)
            co_return status_of_storage(attrs.error());
        before = *attrs;
    }
    co_await learn_client(k);
    const state_home::looking file{&o.backend(), o.request, o.file, o.state_file(), *before};
    const auto looked = co_await k.server.state.look(k.client, file);
    if (!looked)
        co_return status_of_state(looked.error());
    // Without an answer nobody may have been asked, or the holder has written what it had before it gave the delegation back.
    const std::optional<kept_attributes> kept = *looked;
    const storage::attributes* const known = kept ? &*before : nullptr;
    task<nfsstat4> telling = k.server.values.values_of(k, o, wanted, out, kept ? &*kept : nullptr, known);
    co_return co_await telling;
}

// Of the current file, for who compares them too.
task<nfsstat4> current_values(compound& k, bitmap4 wanted, object_values& out)
{
    if (asks_a_writer(k, wanted))
        return values_of_a_writer(k, wanted, out);
    return k.server.values.values_of(k, k.current, wanted, out, nullptr, k.just_learnt());
}

task<void> reserve_for_acl(compound& k, const object_values& values)
{
    const std::size_t wanted = values.acl->size() + rest_of_acl;
    if (wanted > k.results.room())
        k.lacks_memory = !co_await k.c.reserve_results(wanted);
}

} // namespace

task<nfsstat4> getattr(compound& k)
{
    GETATTR4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    // What the minor version does not know yet is not there to be read or written.
    if (!(args.attr_request & write_only_attributes & attributes_of_minor(k.minor())).none())
        co_return nfsstat4::inval;
    object_values values;
    const nfsstat4 status = co_await current_values(k, args.attr_request, values);
    if (status != nfsstat4::ok)
        co_return status;
    if (values.acl) {
        if (values.all.acl.size() > max_sent_aces) // before memory is taken for it
            co_return nfsstat4::rep_too_big;
        co_await reserve_for_acl(k, values);
    }
    encode_attributes(k.results.begin(GETATTR4args::opcode), args.attr_request & k.supported(k.current),
                      values.all);
    co_return k.results.end() ? nfsstat4::ok : k.too_big();
}

task<nfsstat4> setattr(compound& k)
{
    SETATTR4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = k.need_file(purpose::changing);
    attributes wanted;
    if (status == nfsstat4::ok)
        status = decode_settable(args.obj_attributes, k.supported(k.current), settable_attributes, wanted);
    storage::set_attributes set;
    storage::access_list acl;
    if (status == nfsstat4::ok)
        status = from_settable(wanted, set, acl);
    if (status == nfsstat4::badowner && k.server.names.may_be_said()) {
        task<nfsstat4> naming = k.server.names.to_settable(k.waits, wanted, set, acl);
        status = co_await naming;
    }
    if (status == nfsstat4::ok)
        status = k.resolve(args.stateid);
    // Also where no size is set, and nothing would ask for it (8881 8.2.3).
    if (status == nfsstat4::ok && args.stateid.is_reserved() && !args.stateid.is_anonymous() &&
        !args.stateid.is_read_bypass())
        status = nfsstat4::bad_stateid;
    if (status == nfsstat4::ok)
        status = k.check_room<SETATTR4res>();
    const files::operation op = set.size ? files::operation::set_size : files::operation::set_attributes;
    bool is_held = false;
    if (status == nfsstat4::ok && (set.size || !args.stateid.is_reserved())) {
        status = co_await check_io(k, args.stateid, op);
        // A stateid says nothing of others' delegations where it is not to write.
        is_held = k.server.state.has_state(k.current.key());
    } else if (status == nfsstat4::ok) {
        is_held = k.begin(k.current, op);
    }
    if (status == nfsstat4::ok && is_held)
        status = co_await make_way(k, k.current, files::operation::set_attributes);
    if (status != nfsstat4::ok)
        co_return status;
    const auto done =
        co_await k.current.backend().setattr(k.current.request, k.current.file, set, std::nullopt);
    if (!done) {
        status = status_of_setting(done.error(), set);
        // From minor version 1 on SETATTR has no ISDIR (8881 15.2).
        if (k.minor() != 0 && status == nfsstat4::isdir)
            status = nfsstat4::inval;
        co_return status;
    }
    SETATTR4res res;
    res.attrsset = without_mode_of_link(args.obj_attributes.attrmask, done->after);
    co_return k.add(res);
}

task<nfsstat4> access(compound& k)
{
    ACCESS4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    const std::uint32_t defined = k.minor() >= 2 ? access4::all_with_xattr : access4::all;
    if ((args.access & ~defined) != 0)
        co_return nfsstat4::inval;
    ACCESS4res res;
    object& o = k.current;
    if (o.is_pseudo()) {
        res.supported = args.access & access4::all & ~access4::execute;
        res.access = args.access & (access4::read | access4::lookup);
        co_return k.add(res);
    }
    if (!o.type) {
        const auto attrs = co_await o.backend().getattr(o.request, o.file);
        if (!attrs)
            co_return status_of_storage(attrs.error());
        o.type = attrs->type;
    }
    const bool directory = *o.type == storage::file_type::directory;
    const bool has_xattrs =
        o.backend().info().xattrs && (directory || *o.type == storage::file_type::regular);
    const std::uint32_t known = has_xattrs ? access4::all_with_xattr : access4::all;
    res.supported = args.access & known & ~(directory ? access4::execute : access4::lookup | access4::remove);
    std::uint32_t wanted = res.supported;
    if (o.exported->read_only)
        wanted &= ~(access4::modify | access4::extend | access4::remove | access4::xawrite);
    // The first six bits are version 3's. Extended attributes are read and written by whom the file may be; to see their names takes no right.
    unsigned permissions = v3::to_permissions(wanted & access4::all, *o.type);
    if ((wanted & access4::xaread) != 0)
        permissions |= R_OK;
    if ((wanted & access4::xawrite) != 0)
        permissions |= W_OK;
    const auto allowed = co_await o.backend().access(o.request, o.file, permissions);
    if (!allowed)
        co_return status_of_storage(allowed.error());
    res.access = v3::to_access3(wanted & access4::all, *allowed, *o.type) | (wanted & access4::xalist);
    if ((*allowed & R_OK) != 0)
        res.access |= wanted & access4::xaread;
    if ((*allowed & W_OK) != 0)
        res.access |= wanted & access4::xawrite;
    co_return k.add(res);
}

namespace {

// Of the owners in `theirs`, those whose text is another one than would be told.
attributes called_otherwise(const fattr4& theirs, const attributes& told)
{
    attributes said, others;
    if (!theirs.attrmask.test(attribute::owner) && !theirs.attrmask.test(attribute::owner_group))
        return others;
    if (!decode_attributes(theirs, said))
        return others; // which is found when they are compared
    others.owner = said.owner;
    others.owner_group = said.owner_group;
    if (said.present.test(attribute::owner) && said.owner != told.owner)
        others.present.set(attribute::owner);
    if (said.present.test(attribute::owner_group) && said.owner_group != told.owner_group)
        others.present.set(attribute::owner_group);
    return others;
}

// What has no ACL in it. As a plain function: its memory is no part of the frame of each VERIFY.
nfsstat4 compare_on_stack(const fattr4& theirs, const bitmap4& known, const attributes& ours) noexcept
{
    std::array<std::byte, 6144> scratch;
    return compare_attributes(theirs, known, ours, scratch);
}

bool is_same_entry(const nfsace4& one, const nfsace4& other) noexcept
{
    return one.type == other.type && one.flag == other.flag && one.access_mask == other.access_mask &&
           one.who == other.who;
}

// Entries of an ACL are for whom the text means, as owners are: if all of theirs are ours, the list is said as the client says it.
task<nfsstat4> compare_acl(compound& k, const acl_view& theirs, object_values& values)
{
    if (theirs.size() != values.all.acl.size())
        co_return nfsstat4::ok;
    auto ours = values.all.acl.begin();
    for (auto at = theirs.begin(); at != theirs.end(); ++at, ++ours) {
        nfsace4 each = *at;
        storage::ace meant;
        std::array<char, 10> digits{};
        if (k.server.names.may_be_said() && from_ace(each, meant) == nfsstat4::badowner) {
            const bool group = (each.flag & ace4::identifier_group) != 0;
            std::uint32_t id = 0;
            const nfsstat4 found = co_await k.server.names.id_of(
                k.waits, group ? account_kind::group : account_kind::user, each.who, id);
            if (k.waits.is_undecided(found))
                co_return nfsstat4::delay;
            if (found == nfsstat4::ok)
                each.who = write_who(digits, id, group);
        }
        if (!is_same_entry(each, *ours))
            co_return nfsstat4::ok;
    }
    values.all.acl = theirs;
    co_return nfsstat4::ok;
}

task<nfsstat4> compare(compound& k, const fattr4& theirs)
{
    if (k.current.none())
        co_return nfsstat4::nofilehandle;
    // Before a holder is asked, or loses what it holds.
    const bitmap4 known = k.supported(k.current);
    nfsstat4 status = check_compared(theirs, known);
    if (status != nfsstat4::ok)
        co_return status;
    object_values values;
    status = co_await current_values(k, theirs.attrmask, values);
    if (status != nfsstat4::ok)
        co_return status;
    // Owners are compared by whom the text means, as SETATTR takes it: then they are called as the client does.
    if (const attributes owners = called_otherwise(theirs, values.all); !owners.present.none()) {
        storage::set_attributes meant;
        nfsstat4 found = from_attributes(owners, meant);
        if (found == nfsstat4::badowner && k.server.names.may_be_said()) {
            task<nfsstat4> naming = k.server.names.to_attributes(k.waits, owners, meant);
            found = co_await naming;
        }
        if (k.waits.is_undecided(found))
            co_return nfsstat4::delay;
        if (found == nfsstat4::ok && meant.uid == values.uid)
            values.all.owner = owners.owner;
        if (found == nfsstat4::ok && meant.gid == values.gid)
            values.all.owner_group = owners.owner_group;
    }
    if (values.acl) {
        if (attributes said; decode_attributes(theirs, said)) {
            const nfsstat4 found = co_await compare_acl(k, said.acl, values);
            if (found != nfsstat4::ok)
                co_return found;
        }
        std::vector<std::byte> large(2 * max_attribute_values);
        co_return compare_attributes(theirs, known, values.all, large);
    }
    co_return compare_on_stack(theirs, known, values.all);
}

} // namespace

task<nfsstat4> verify(compound& k)
{
    VERIFY4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    const nfsstat4 status = co_await compare(k, args.obj_attributes);
    co_return status == nfsstat4::same ? k.add(VERIFY4res()) : status;
}

task<nfsstat4> nverify(compound& k)
{
    NVERIFY4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    const nfsstat4 status = co_await compare(k, args.obj_attributes);
    co_return status == nfsstat4::not_same ? k.add(NVERIFY4res()) : status;
}

} // namespace verbena::nfs::v4::operations
