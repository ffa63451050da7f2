// SPDX-License-Identifier: Apache-2.0
// What a client has of one file's layouts, and what it wrote by them: shared by the open file and the recalls under way.
#pragma once

#include "../open_arguments.hpp"

#include <verbena/core/task/event.hpp>
#include <verbena/core/task/semaphore.hpp>
#include <verbena/protocols/nfs/client/v4/pnfs/layout_map.hpp>
#include <verbena/protocols/nfs/client/v4/pnfs/layout_user.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace verbena::nfs::v4::pnfs {

/// One of the open files that share the layouts of a file.
struct layout_sharer {
    explicit layout_sharer(std::unique_ptr<v4::file> f) noexcept : plain(std::move(f)) {}
    const std::unique_ptr<v4::file> plain;
    std::uint64_t expected = 0; ///< size that its user is to give the file
    bool is_closing = false;
    bool has_lost_bytes = false; ///< with its locks, which the next commit() or close() tells
    result<void> closing;        ///< what it came to, where whoever gives layouts back has closed it
    event closed;                ///< likewise, once it has
};

/// Three things are kept apart by what may wait for what:
///
/// - I/O by a layout is counted (`under_way`), and waits for no call of NFS. Its connection is made before.
/// - LAYOUTGET, LAYOUTCOMMIT and LAYOUTRETURN take turns (`turn`), so that answers come in the order of the stateid's numbers.
/// - Who takes extents away has the turn, shuts the gate (`shut`), and waits until no I/O is under way.
struct file_layout : std::enable_shared_from_this<file_layout> {
    file_layout(layout_user& u, const v4::node& f, std::size_t n);
    file_layout(const file_layout&) = delete;
    ~file_layout();

    /// I/O by a layout, while it lives.
    class io {
    public:
        explicit io(file_layout& of) noexcept : of_(of) { ++of_.under_way; }
        io(const io&) = delete;
        ~io()
        {
            if (--of_.under_way == 0)
                of_.quiet.set();
        }

    private:
        file_layout& of_;
    };
    /// No I/O begins while it lives. For who has the turn.
    class shutter {
    public:
        explicit shutter(file_layout& of) noexcept : of_(of)
        {
            of_.shut = true;
            of_.opened.reset();
        }
        shutter(const shutter&) = delete;
        ~shutter()
        {
            of_.shut = false;
            of_.opened.set();
        }

    private:
        file_layout& of_;
    };

    struct written {
        written(std::uint64_t n, std::uint64_t o, rpc::payload d, std::weak_ptr<layout_sharer> w) noexcept
            : number(n), offset(o), data(std::move(d)), by(std::move(w))
        {
        }
        std::uint64_t end() const noexcept { return offset + data.size(); }
        std::uint64_t number;
        std::uint64_t offset;
        rpc::payload data;
        std::weak_ptr<layout_sharer> by; // while it is open, it is written again by that one
    };
    // By a connection, and not known to be placed: a read of the byte tells so.
    struct unflushed {
        std::shared_ptr<data_connection> by;
        deviceid4 device{};
        std::uint64_t last_write = 0; // its number
        std::uint32_t handle = 0;
        std::uint64_t address = 0;
    };
    /// By RDMA, of which the server has not been told yet.
    struct moved_bytes {
        io_info4 read, written;
        deviceid4 device{}; ///< that of the last ones
    };
    struct recall {
        layoutiomode4 mode = layoutiomode4::any;
        std::uint64_t offset = 0;
        std::uint64_t length = UINT64_MAX;
    };

    // file_layout.cpp
    bool is_of_this_server() const noexcept;
    /// Else what it was given may be somebody else's by now (8881 8.4).
    bool has_lease() const noexcept { return of.session().lease_holds(); }
    /// How it may go on: there is an extent, I/O goes by NFS for `why`, or all is to be looked at again.
    struct chance {
        by_nfs why = by_nfs::none;
        bool again = false;
    };
    task<chance> have(const std::shared_ptr<layout_sharer>& by, layoutiomode4 mode, std::uint64_t offset,
                      std::uint64_t length, unsigned& asked);
    by_nfs why_not_ask(const layout_sharer& by, layoutiomode4 mode, std::uint64_t end) const noexcept;
    task<chance> ask(const std::shared_ptr<layout_sharer>& by, layoutiomode4 mode, std::uint64_t offset,
                     std::uint64_t length, unsigned& asked);
    task<chance> ask_later(unsigned& asked);
    struct answer {
        by_nfs why = by_nfs::none;
        bool is_late = false; ///< the server says "later"
        bool again = false;
    };
    task<answer> get(const std::shared_ptr<layout_sharer>& by, layoutiomode4 mode, std::uint64_t offset,
                     std::uint64_t length, std::uint64_t block);
    answer refused(const error& why, bool by_layout);
    by_nfs take(const LAYOUTGET4res& res, const rdma_layout_request& asked, std::uint64_t block);
    /// Until I/O may begin. What a lost layout has left is written by NFS before.
    task<result<void>> settle();
    task<result<void>> recover();
    /// Until no I/O is under way, not even such that nobody waits for any more: its keys must not go under it.
    task<result<void>> be_quiet();
    void lose(by_nfs why) noexcept;
    /// Asks the server how long the file is by now.
    task<result<void>> look_at_size();
    /// All that was written by RDMA before the call is stable, or written by NFS.
    task<result<void>> commit();
    task<result<void>> commit_in_turn();
    /// Likewise, for who has the turn and has shut: until nothing is left to commit, or the layout is lost.
    task<result<void>> come_to_rest();
    task<result<void>> commit_some(std::span<const pnfs_rdma_range4> ranges, std::uint64_t begin,
                                   std::uint64_t end);
    /// Whether the server did it. If not, the layout is found to be lost.
    task<result<bool>> tell(const LAYOUTCOMMIT4args& args);
    task<result<void>> flush();
    /// The file goes on to `end` at least, or as far as the layout does, where the server is concerned.
    task<result<void>> extend(std::uint64_t offset, std::uint64_t end);
    /// LAYOUTRETURN, for who has the turn, has shut and has a layout. Fails where it is not known to be returned, as the server can't be asked, or puts it
    /// off.
    task<result<void>> give_back_in_turn(recall what);
    /// That call. Yields the layout's stateid, if the server has kept some of it.
    task<result<std::optional<stateid4>>> send_return(const LAYOUTRETURN4args& args);
    /// The same, with `said` before it in the same COMPOUND.
    template<class Said>
    task<result<std::optional<stateid4>>> send_return_behind(const Said& said, const LAYOUTRETURN4args& args,
                                                             bool& is_taken, nfsstat4& refusal);
    /// Commits, and gives back all that there is.
    task<result<void>> give_back();
    task<void> give_recalled_back();
    task<result<void>> give_next_back();
    nfsstat4 answer_to(const CB_LAYOUTRECALL4args& args) const noexcept;
    /// It was answered with OK.
    void note_recall(const CB_LAYOUTRECALL4args& args);
    void take_number(const stateid4& newest) noexcept;
    void forget_layout() noexcept;
    // sharers.cpp
    void join(std::shared_ptr<layout_sharer> one);
    /// Its user has closed it, or let it go. A recall that is under way ends by itself, and writes nothing by it.
    void leave(const std::shared_ptr<layout_sharer>& one) noexcept;
    void let_go() noexcept;
    task<result<void>> close(std::shared_ptr<layout_sharer> one);
    /// What its users have left to whoever gives layouts back.
    task<void> close_those_left();
    bool is_last(const layout_sharer& one) const noexcept;
    /// Of those that are open and may write: the one that wrote it, if it is one of them.
    std::shared_ptr<layout_sharer> writer_of(const written& bytes) const noexcept;
    bool has_uncommitted_by_nfs() const noexcept;
    task<result<void>> commit_by_nfs();
    /// RDMA has changed the file, or LAYOUTCOMMIT.
    void is_changed() noexcept { latest->plain->is_changed_by_layout(); }

    // layout_file.cpp
    task<result<v4::file::read_result>> read(const std::shared_ptr<layout_sharer>& by, std::uint64_t offset,
                                             std::uint32_t count);
    task<result<v4::file::read_result>> read_by_layout(std::uint64_t offset, std::uint32_t count);
    task<result<v4::file::read_result>> read_by_nfs(const std::shared_ptr<layout_sharer>& by,
                                                    std::uint64_t offset, std::uint32_t count, by_nfs why);
    /// Memory of the pool, none where it can't be had. What waits to be committed may have all of it.
    task<result<lease>> memory_of(std::size_t size);
    task<result<void>> write(const std::shared_ptr<layout_sharer>& by, std::uint64_t offset,
                             rpc::payload data);
    task<result<std::size_t>> write_by_layout(const std::shared_ptr<layout_sharer>& who, std::uint64_t offset,
                                              const rpc::payload& data, std::size_t begin);
    task<result<std::size_t>> write_blocks(const std::shared_ptr<layout_sharer>& who, std::uint64_t offset,
                                           const rpc::payload& data, std::size_t begin, std::size_t end,
                                           std::shared_ptr<data_connection> by, deviceid4 device,
                                           lease memory);
    task<result<void>> write_by_nfs(const std::shared_ptr<layout_sharer>& by, std::uint64_t offset,
                                    rpc::payload data, by_nfs why);
    task<result<std::shared_ptr<data_connection>>> connection_to(deviceid4 device);
    /// I/O by that connection has failed.
    void note_failure(const std::shared_ptr<data_connection>& by, const deviceid4& device, nfs_opnum4 what,
                      const error& why);
    /// Of the first bytes that lie somewhere.
    std::optional<deviceid4> device_to_read(std::uint64_t offset, std::uint32_t count) const noexcept;
    void note_written(const std::shared_ptr<layout_sharer>& who, std::uint64_t offset,
                      const rpc::payload& data, std::size_t begin, std::size_t end,
                      const std::shared_ptr<data_connection>& by, const deviceid4& device,
                      const data_connection::piece& last);
    void note(by_nfs why) noexcept;
    error not_by_nfs(by_nfs why) const noexcept;

    layout_user& user;
    client& of;
    const v4::node node; ///< as its first open had it
    std::vector<std::shared_ptr<layout_sharer>> sharers;
    std::vector<std::shared_ptr<layout_sharer>> left; ///< to be closed by who gives layouts back
    std::shared_ptr<layout_sharer> latest;            ///< never none: of those, or what was the last one
    const std::size_t lane;
    std::uint64_t size;  ///< of the file: when a layout was given last, and what was written since
    std::uint64_t there; ///< likewise, as the server knows it
    layout_map map;
    std::optional<stateid4> id;    ///< the newest of the layout, while there is one
    std::uint64_t incarnation = 0; ///< of the server that gave it
    bool is_asking = false;        ///< a LAYOUTGET is under way
    std::uint64_t changes = 0;     ///< of the file by this client's calls of NFS, counted twice each
    bool is_lost = false;          ///< nothing of `map` may be used any more, and `pending` is in doubt
    bool is_revoked = false;       ///< by the server, so that there is nothing to give back
    by_nfs never = by_nfs::none;   ///< why there is never one while it is open
    by_nfs rests_for = by_nfs::none;
    time_point rests_until{};
    by_nfs last = by_nfs::none;
    std::uint64_t used = 0;

    bool shut = false;
    event opened; // while it is not
    std::size_t under_way = 0;
    event quiet;
    std::vector<std::shared_ptr<data_connection>> given_up; // by which there may be I/O that nobody waits for
    semaphore turn{1};
    semaphore block_turn{1};      // of writes that fill blocks up
    std::vector<written> pending; // in the order in which they ended
    std::uint64_t number = 0;     // of the next one
    std::size_t uncommitted = 0;
    std::vector<unflushed> unplaced;
    moved_bytes moved;
    std::optional<device_error4>
        failure;                 ///< of a connection to a device, of which the server has not been told yet
    std::vector<recall> recalls; // that were answered with OK
    bool is_giving_back = false;
    event gave_back; // while it is not
    lease
        reserve; // for the calls in turn, while there is a layout: what waits for them may have all other memory
};

} // namespace verbena::nfs::v4::pnfs
