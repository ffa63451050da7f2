// SPDX-License-Identifier: Apache-2.0
// What the operations of one COMPOUND share.
#pragma once

#include "call_context.hpp"
#include "object.hpp"
#include "server_parts.hpp"

#include <verbena/protocols/files/under_way.hpp>
#include <verbena/protocols/nfs/server/v4/sessions.hpp>
#include <verbena/protocols/nfs/server/v4/state_answers.hpp>
#include <verbena/protocols/nfs/server/v4/storage.hpp>
#include <verbena/protocols/nfs/wire/v4/compound.hpp>
#include <verbena/protocols/rpc/program.hpp>

#include <algorithm>
#include <array>
#include <cassert>
#include <optional>
#include <utility>

namespace verbena::nfs::v4 {

/// What off_t can say.
inline constexpr std::uint64_t last_offset = ~std::uint64_t(0) >> 1;

/// One COMPOUND while it runs. Operations are functions over it.
struct compound final : call_context, private request_detail {
    compound(server_parts& of, rpc::call& from, compound_arguments& arguments, std::size_t most) noexcept
        : call_context(from, arguments.head().minorversion),
          server(of),
          args(arguments),
          start(from.results().position()),
          limit(most),
          results(from.results(), arguments.head().tag, most)
    {
        c.set_detail(this);
    }
    ~compound()
    {
        c.served([this] { return std::string_view(to_string(results.status())); });
        c.set_detail(nullptr);
    }
    /// The operation that runs, and the file that is the current one.
    void describe(request_report& into) const noexcept override;

    /// Bytes that an operation finds for its results, unless there is no memory. Those that need more say so.
    static constexpr std::size_t least_room = 1536;

    server_parts& server;
    const export_table::use exports = server.handles.begin_use(); // of all that it refers to
    compound_arguments& args;
    const std::size_t start; // where the results begin in the reply
    const std::size_t limit; // bytes that they may take
    compound_results results;

    verbena::nfs::v4::session* session = nullptr; // nothing where an operation stands alone
    files::client_id client = files::nobody;
    slot_use* slot = nullptr;   // likewise
    bool kept = false;          // the reply will be kept for repeats
    std::uint32_t read = 0;     // operations behind SEQUENCE whose arguments could be read
    bool lacks_memory = false;  // for more results, which there would be room for
    bool changed = false;       // an operation of its has changed something
    bool dropped = false;       // there is nobody to be answered any more
    bool answered = false;      // the operation has written its failure itself
    bool met_limit = false;     // of what clients may have: NOSPC is not of a disk then
    state_home::io_terms terms; // of the last check_io()
    // What a WRITE left its file with, for a GETATTR that follows at once, as Linux's does.
    std::optional<storage::attributes> written;
    std::uint32_t written_by = 0;        // the operation's index
    bool may_delegate = false;           // of OPEN in minor version 0: see v40_state::begun
    time_point ended{};                  // when the last operation ended that is_timed(); nothing if none did
    bool client_sought = false;          // in minor version 0: see learn_client()
    const xdr::decoder* whole = nullptr; // the COMPOUND from its beginning, in minor version 0

    // What the operation that runs does: to two files at most.
    std::array<files::under_way, 2> doing;
    unsigned doing_count = 0;
    // By which that is done, if it is by one: as long as that.
    std::array<std::shared_ptr<const storage::open_file>, 2> opened;
    object current, saved;
    std::optional<stateid4> current_id, saved_id;

    /// Who calls, and by which connection.
    void is_of(files::client_id who) noexcept
    {
        client = who;
        c.from().client = who;
    }
    files::under_way& next_doing() noexcept
    {
        assert(doing_count < doing.size() && "an operation on three files");
        return doing[doing_count++];
    }
    /// `op` is under way from here on, until the operation ends. Whether make_way() is to be awaited.
    [[nodiscard]] bool begin(const object& of, files::operation op) noexcept
    {
        return server.state.begin(next_doing(), server.under_way, of.exported->space, of.file, op);
    }
    void end_doing() noexcept
    {
        current.request.open = saved.request.open = nullptr;
        while (doing_count > 0) {
            doing[--doing_count].end();
            opened[doing_count].reset();
        }
    }
    /// Now. Kept, since the end of the last operation is the end of the COMPOUND.
    time_point end_time() noexcept { return ended = server.here.reactor().clock().now(); }
    /// What counts for the export of the current handle; nullptr if nothing does.
    export_counters* counters_of_current() const noexcept
    {
        return current.is_pseudo() ? nullptr : current.exported->counters(server.here.index());
    }
    bitmap4 supported(const object& of) const noexcept { return supported_attributes_of(of, minor()); }
    bool is_last() const noexcept { return args.index() == args.head().operations; }
    /// Attributes of the current file that the operation before this one has learnt; nullptr if it has not.
    const storage::attributes* just_learnt() const noexcept
    {
        return written && args.index() == written_by + 1 ? &*written : nullptr;
    }
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
    /// Whether a READ or a READLINK gives its data to the transport, in the order of which Write chunks are used (8267 6.4.1).
    bool may_attach() const noexcept { return c.results().payloads().size() < xdr::encoder::max_payloads; }
    /// Whether the READ that runs may have its bytes sent from the file itself. The peer then gets what the file holds when the bytes arrive:
    /// sendfile(2) hands pages of the file to the socket and copies nothing, so that a change shows even after it has returned. So the READ
    /// has to be the last operation, since no later one may come before it (8881 16.2.3); Linux and our client always send it so. And its
    /// stateid must not keep others from writing: the client may unlock before it has the bytes, and what others write then is not for it.
    bool may_send_from_file() const noexcept { return is_last() && !terms.keeps_writers_out && !kept; }
    /// Bytes of buffers that the data so far lie in, and of memory on loan.
    std::size_t attached_bytes() const noexcept
    {
        std::size_t sum = 0;
        for (std::size_t i = 0; i < c.attached().size(); ++i) {
            const rpc::payload& data = c.attached()[i].bytes;
            sum += data.owner(0) ? data.owner(0).size() : data.size();
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
    /// For the state layer, what need_file() found; nothing where it found none.
    files::exported_file file_of_current() const noexcept
    {
        return current.none() || current.is_pseudo() ? files::exported_file() : current.state_file();
    }
    /// A new current handle has no stateid (8881 16.2.3.1.2).
    void set_current(object o) noexcept
    {
        current = std::move(o);
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
