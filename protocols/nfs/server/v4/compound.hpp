// SPDX-License-Identifier: Apache-2.0
// What the operations of one COMPOUND share.
#pragma once

#include <verbena/core/siphash.hpp>
#include <verbena/protocols/nfs/server/v4/server.hpp>

#include <algorithm>
#include <array>
#include <cassert>
#include <optional>

namespace verbena::nfs::v4 {

/// What off_t can say.
inline constexpr std::uint64_t last_offset = ~std::uint64_t(0) >> 1;

/// What a handle stands for, once it was found that the caller may use it.
struct server::object {
    const pseudo_node* node = nullptr; // of the pseudo file system, unless `exported`
    const export_options* exported = nullptr;
    storage::handle file;
    storage::request request;

    bool none() const noexcept { return node == nullptr && exported == nullptr; }
    bool is_pseudo() const noexcept { return exported == nullptr; }
    storage::file_backend& backend() const noexcept { return *exported->backend; }
    bool is_export_root() const noexcept { return exported != nullptr && file == backend().root(); }
    /// The state layer's name for the file.
    storage::handle key() const noexcept { return state_key(exported->id, file); }
};

/// What an operation does that a repeat may not do again.
bool changes_something(nfs_opnum4 operation) noexcept;

/// What READDIR may say of an entry without asking the back end for its attributes.
inline constexpr bitmap4 of_names = {attribute::fileid, attribute::mounted_on_fileid,
                                     attribute::rdattr_error};
/// What SETATTR may name, and what CREATE and OPEN may. No back end sets a time of birth, so that who tries hears
/// INVAL, as of all that can only be read.
inline constexpr bitmap4 settable_attributes = attributes_for_setattr - bitmap4{attribute::time_create};
inline constexpr bitmap4 settable_at_creation = attributes_for_create - bitmap4{attribute::time_create};
/// What is asked of the file system, not of the file.
inline constexpr bitmap4 of_space = {attribute::files_avail, attribute::files_free, attribute::files_total,
                                     attribute::space_avail, attribute::space_free, attribute::space_total};
/// What EXCLUSIVE4_1 may name (8881 5.8.1.14): a back end may keep the verifier in the times.
inline constexpr bitmap4 attributes_for_exclusive =
    settable_at_creation - bitmap4{attribute::time_access_set, attribute::time_modify_set};
/// `asked` but for what a creation left as it would have been anyway: back ends let root alone give files away, and take no notice of
/// others who name an owner.
inline bitmap4 set_at_creation(bitmap4 asked, const storage::set_attributes& set,
                               const std::optional<storage::attributes>& made) noexcept
{
    if (set.uid && (!made || made->uid != *set.uid))
        asked.reset(attribute::owner);
    if (set.gid && (!made || made->gid != *set.gid))
        asked.reset(attribute::owner_group);
    return asked;
}
/// Bytes of an empty listing: opcode, status, verifier, and the two words behind the entries.
inline constexpr std::size_t least_listing = 24;

/// Of what READDIR fails with: back ends say of the verifier alone that it is no longer good (8881 18.23.3).
inline nfsstat4 status_of_listing(const error& failure) noexcept
{
    return failure == storage::errc::bad_cookie ? nfsstat4::not_same : status_of_storage(failure);
}

/// A view of `holder`.
LOCK4denied to_denied(const files::lock_holder& holder) noexcept;

/// `type` is read, write or none.
open_delegation4 delegation4_of(open_delegation_type4 type, const stateid4& id, bool recalled) noexcept;

struct server::compound {
    compound(rpc::call& from, compound_arguments& arguments, std::size_t most) noexcept
        : c(from),
          args(arguments),
          start(from.results().position()),
          limit(most),
          results(from.results(), arguments.head().tag, most)
    {
    }

    /// Bytes that an operation finds for its results, unless there is no memory. Those that need more say so.
    static constexpr std::size_t least_room = 1536;

    rpc::call& c;
    compound_arguments& args;
    const std::size_t start; // where the results begin in the reply
    const std::size_t limit; // bytes that they may take
    compound_results results;

    std::shared_ptr<verbena::nfs::v4::session> session; // nothing where an operation stands alone
    files::client_id client = files::nobody;
    slot_use* slot = nullptr;            // likewise
    bool kept = false;                   // the reply will be kept for repeats
    bool lacks_memory = false;           // for more results, which there would be room for
    bool changed = false;                // an operation of its has changed something
    bool dropped = false;                // there is nobody to be answered any more
    bool answered = false;               // the operation has written its failure itself
    state_home::io_terms terms;          // of the last check_io()
    bool may_delegate = false;           // of OPEN in minor version 0: see v40_state::begun
    bool client_sought = false;          // in minor version 0: see learn_client()
    const xdr::decoder* whole = nullptr; // the COMPOUND from its beginning, in minor version 0
    duration names_waited{0};            // for lookups of owners' names, by all operations so far
    bool gave_a_name_up = false;         // the last one could not be looked up

    std::array<io_list::hold, 2>
        io; // of the operation that runs: an operation reads and writes two files at most
    unsigned io_count = 0;
    // By which that is done, if it is by one: as long as their holds.
    std::array<std::shared_ptr<const storage::open_file>, 2> opened;
    object current, saved;
    std::optional<stateid4> current_id, saved_id;

    /// Of a name that was looked up to compare it: nobody knows whom it means, so that neither answer would be true.
    bool is_undecided(nfsstat4 found) const noexcept
    {
        return found == nfsstat4::delay || (found == nfsstat4::badowner && gave_a_name_up);
    }
    void begin_io(io_list& list, const object& of, files::share access) noexcept
    {
        assert(io_count < io.size() && "an operation on three files");
        io[io_count++].begin(list, of.exported->id, of.file, access);
    }
    void end_io() noexcept
    {
        current.request.open = saved.request.open = nullptr;
        while (io_count > 0) {
            io[--io_count].end();
            opened[io_count].reset();
        }
    }
    std::uint32_t minor() const noexcept { return args.head().minorversion; }
    bool is_last() const noexcept { return args.index() == args.head().operations; }
    nfsstat4 too_big() const noexcept
    {
        if (lacks_memory)
            return nfsstat4::delay;
        return kept ? nfsstat4::rep_too_big_to_cache : nfsstat4::rep_too_big;
    }
    template<class Results>
    nfsstat4 add(const Results& res) noexcept
    {
        return results.add(res) ? nfsstat4::ok : too_big();
    }
    /// To be asked before what can't be taken back.
    template<class Results>
    nfsstat4 check_room() const noexcept
    {
        static_assert(least_room >= 4 + xdr::max_size<Results> + 12);
        return results.has_room_for<Results>() ? nfsstat4::ok : too_big();
    }
    /// What LOCK or LOCKT is answered: DENIED says for what.
    template<class Results>
    nfsstat4 add_lock(Results& res, nfsstat4 status, const files::lock_holder* holder) noexcept
    {
        res.status = status;
        if (status == nfsstat4::denied && holder != nullptr)
            res.denied = to_denied(*holder);
        else if (status != nfsstat4::ok)
            return status;
        const nfsstat4 added = add(res);
        answered = added == nfsstat4::ok && status != nfsstat4::ok;
        return added == nfsstat4::ok ? status : added;
    }
    /// Whether a READ or a READLINK gives its data to the transport, in the order of which Write chunks are used (8267 6.4.1).
    bool may_attach() const noexcept { return c.results().payloads().size() < xdr::encoder::max_payloads; }
    /// Whether the READ that runs may have its bytes sent from the file itself. The peer then gets what the file holds when the bytes arrive:
    /// sendfile(2) hands pages of the file to the socket and copies nothing, so that a change shows even after it has returned. So the READ
    /// has to be the last operation, since no later one may come before it (8881 16.2.3); Linux and our client always send it so. And its
    /// stateid must not keep others from writing: the client may unlock before it has the bytes, and what others write then is not for it.
    bool may_send_from_file() const noexcept
    {
        return is_last() && !terms.guarded && !kept && c.takes_files();
    }
    /// Bytes of buffers that the data so far lie in.
    std::size_t attached_bytes() const noexcept
    {
        std::size_t sum = 0;
        for (std::size_t i = 0; i < c.attached().size(); ++i) {
            const rpc::payload& data = c.attached()[i].bytes;
            sum += data.owner(0) ? data.owner(0).size() : 0;
        }
        return sum;
    }
    /// Moves data that leave half of their buffer unused to a smaller one, unless they are the first: a client could have each of many
    /// READs at the end of a file hold a megabyte.
    std::span<const std::byte> without_slack(lease& buffer, std::span<const std::byte> data) const
    {
        const std::size_t wanted = std::max(data.size(), buffer_pool::min_size);
        if (c.attached().empty() || wanted > buffer.size() / 2)
            return data;
        lease smaller = c.buffers().try_acquire(wanted);
        if (!smaller || smaller.size() >= buffer.size())
            return data;
        std::copy(data.begin(), data.end(), smaller.data());
        data = std::span<const std::byte>(smaller.data(), data.size());
        buffer = std::move(smaller);
        return data;
    }
    /// Of an argument that did not come: the status, or that nobody is there to hear one.
    nfsstat4 not_pulled(const error& why) noexcept
    {
        if (why == std::errc::bad_message) // it lies in no chunk
            return nfsstat4::badxdr;
        dropped = why != std::errc::not_enough_memory;
        return nfsstat4::delay;
    }
    /// Bytes that results may still take, wherever they lie, less what a failure takes.
    std::size_t left() const noexcept
    {
        const std::size_t taken = c.results().position() - start + 8;
        return taken > limit ? 0 : limit - taken;
    }

    /// ok if the current handle is of a file or directory of an export, which may be changed if that is the purpose.
    nfsstat4 need_file(purpose why) const noexcept
    {
        if (current.none())
            return nfsstat4::nofilehandle;
        return check_file(current, why);
    }
    /// For who gives back what it has open: nobody has anything of the pseudo file system.
    nfsstat4 need_file_of_state() const noexcept
    {
        const nfsstat4 status = need_file(purpose::reading);
        return status == nfsstat4::isdir ? nfsstat4::bad_stateid : status;
    }
    static nfsstat4 check_file(const object& o, purpose why) noexcept
    {
        if (o.is_pseudo())
            return why == purpose::changing ? nfsstat4::rofs : nfsstat4::isdir;
        return why == purpose::changing && o.exported->read_only ? nfsstat4::rofs : nfsstat4::ok;
    }
    /// The state layer's name for what need_file() found; nothing where it found none.
    storage::handle key_of_current() const noexcept
    {
        return current.none() || current.is_pseudo() ? storage::handle() : current.key();
    }
    /// A new current handle has no stateid (8881 16.2.3.1.2).
    void set_current(const object& o) noexcept
    {
        current = o;
        current_id.reset();
    }
    /// Puts the current stateid in the place of the value that stands for it. bad_stateid where there is none.
    /// In minor version 0 none does.
    nfsstat4 resolve(stateid4& id) const noexcept
    {
        return minor() == 0 ? nfsstat4::ok : resolve(id, current_id);
    }
    /// The same for CLOSE and OPEN_DOWNGRADE, which take the number that goes with it (8881 8.2.3): what another OPEN
    /// of the owner has changed since is not closed unseen.
    nfsstat4 resolve_with_number(stateid4& id) const noexcept
    {
        if (!id.is_current() || minor() == 0)
            return nfsstat4::ok;
        if (!current_id)
            return nfsstat4::bad_stateid;
        id = *current_id;
        return nfsstat4::ok;
    }
    /// The same with the one that was saved with the saved handle.
    nfsstat4 resolve_saved(stateid4& id) const noexcept { return resolve(id, saved_id); }
    static nfsstat4 resolve(stateid4& id, const std::optional<stateid4>& known) noexcept
    {
        if (!id.is_current())
            return nfsstat4::ok;
        if (!known)
            return nfsstat4::bad_stateid;
        id = *known;
        id.seqid = 0; // the newest: connections of one session may overtake each other
        return nfsstat4::ok;
    }
};

} // namespace verbena::nfs::v4
