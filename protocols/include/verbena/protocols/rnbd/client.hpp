// SPDX-License-Identifier: Apache-2.0
// The client of RNBD: devices of a server, by an RTRS session. docs/internals/rnbd.md.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/rnbd/wire.hpp>
#include <verbena/protocols/rtrs/client.hpp>
#include <verbena/protocols/storage/block_backend.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::rnbd {

class client;

/// A device that is open. On the session's shard; the client outlives it. When the session begins anew, the device is opened again before
/// requests go on: those that were under way are sent once more. Where that fails, requests fail with what it failed with, and ESTALE
/// where the device is a smaller one by then. A server that began anew may have lost writes that it had answered: flush() tells.
/// Offsets and lengths are bytes, in whole blocks; what is larger than the session's max_io_size() goes in pieces, side by side.
/// Completes when: the server has answered all of it. On cancel: as rtrs::client::write(). Errors: the server's, those of
/// rtrs::client::write(), EINVAL for ranges that are none, EOPNOTSUPP for what the device can't do. Lifetime: the memory outlives the
/// task, best as memory of the session's buffers(); so does the device. Shard: the session's.
class device {
public:
    ~device();
    device(const device&) = delete;
    const std::string& name() const noexcept { return name_; }
    /// What the server says of it.
    storage::block_properties properties() const noexcept { return properties_; }
    access_mode mode() const noexcept { return mode_; }

    /// Reads `into.size()` bytes.
    task<result<void>> read(std::uint64_t offset, std::span<std::byte> into);
    /// `through`: on stable storage when it is answered (FUA).
    task<result<void>> write(std::uint64_t offset, std::span<const std::byte> from, bool through = false);
    /// All changes answered before are on stable storage when it succeeds. Errors: EIO too, of which is_loss() is true: one EIO after one or
    /// more losses. A loss: a session began anew, changes had been answered and not flushed, and the server could not show that
    /// it still has them (storage::block_properties::run), or had failed a flush or a write through since. Whoever
    /// wrote them writes all again that was written since the last flush that succeeded. Flushes that were under way by
    /// then all fail.
    task<result<void>> flush();
    /// The same for one of several users of the device, who keeps count of losses() by itself: fails with EIO if there were more than
    /// `known` when it is over, and does not count as having told of them.
    task<result<void>> flush(std::uint64_t known);
    /// How many times changes were lost since the device was opened. Read it before a change begins and after a flush that succeeded later: if
    /// both are equal, that change was not lost.
    std::uint64_t losses() const noexcept { return losses_; }
    /// Gives blocks back, whose contents are undefined then. Within open_response::max_discard_sectors a piece.
    task<result<void>> discard(std::uint64_t offset, std::uint64_t length);
    /// Fills blocks with zeros, without their bytes on the way. `keep`: they stay allocated.
    task<result<void>> write_zeroes(std::uint64_t offset, std::uint64_t length, bool keep = false);

    /// False if the device could not be opened again when the session began anew: another client had it, for example.
    /// All requests fail then.
    bool usable() const noexcept { return open_.has_value(); }
    /// Opens the device as it is now if it is not usable(); else does nothing. For a new user of it: another client may
    /// have written meanwhile, and the size may differ, so whoever had it open before must not go on. Losses are
    /// counted as when a session begins anew. Completes when: the server has answered. On cancel: as
    /// rtrs::client::read(). Errors: those of client::open(). Lifetime: the device outlives it. Shard: the session's.
    task<result<void>> begin_anew();

private:
    friend class client;
    class header;
    class farewell;
    static constexpr std::uint32_t no_number = ~std::uint32_t(0);
    device(client& owner, std::string name, access_mode mode, const open_response& told);
    void take(const open_response& told) noexcept;
    void take_again(const open_response& told) noexcept;
    void open_again(const result<open_response>& told) noexcept;
    void lose() noexcept;
    void sync_failed(const header& sent, operation what, const error& why) noexcept;
    void count(operation what, std::uint32_t flags) noexcept;
    task<result<void>> send(operation what, io_request m, std::span<std::byte> bytes);
    task<result<void>> move(operation what, std::uint32_t flags, std::uint64_t offset,
                            std::span<std::byte> bytes);
    task<result<void>> move_piece(operation what, std::uint32_t flags, std::uint64_t offset,
                                  std::span<std::byte> bytes);
    task<result<void>> command(operation what, std::uint32_t flags, std::uint64_t offset,
                               std::uint64_t length);

    client& owner_;
    rtrs::client& session_;
    const std::uint64_t id_; ///< of all that the client ever opened
    std::string name_;
    access_mode mode_;
    std::uint32_t number_; ///< in the session as it is now; no_number: it is not open there
    storage::block_properties properties_;
    std::uint32_t max_discard_ = 0; ///< bytes
    std::uint32_t max_zeroes_ = 0;
    result<void> open_;       ///< or why it could not be opened again
    bool given_away_ = false; ///< somebody else has had it since: begin_anew() alone opens it
    std::uint64_t run_ = 0;
    std::uint64_t runs_ = 0;         ///< that may have ended since it was opened
    std::uint64_t openings_ = 0;     ///< after the first one
    std::uint64_t answered_ = 0;     ///< changes that the device may have in its cache alone
    std::uint64_t flushed_ = 0;      ///< so many of them are on stable storage, or were lost
    bool changed_ = false;           ///< at all, in this run
    std::uint64_t failed_syncs_ = 0; ///< by the server's word: what it had answered may be gone
    std::uint64_t settled_ = 0;      ///< so many of them: a later flush succeeded, or a loss was counted
    std::uint64_t losses_ = 0;
    std::uint64_t told_ = 0; ///< of them by flush()
};

/// Whether this is what a flush says when changes were lost that had been answered.
bool is_loss(const error& e) noexcept;

/// Opens devices. `session` has a path that is connected, and outlives it; it has one client, for as long as there are devices.
class client {
public:
    explicit client(rtrs::client& session);
    /// The session is closed, or has no path: nothing of it is under way.
    ~client();
    client(const client&) = delete;

    /// Says which version it speaks. Once, before open(). Completes when: the server has said it too. On cancel: as rtrs::client::read().
    /// Lifetime: the session outlives it. Shard: the session's. Errors: those of rtrs::client::read(); EPROTONOSUPPORT.
    task<result<void>> begin();
    /// Opens a device by its name. Completes when: the server has answered. On cancel: as rtrs::client::read(). Errors: the server's: ENOENT, EACCES,
    /// EROFS, EPERM (somebody else has it open to write). Lifetime: `name` outlives it. Shard: the session's.
    task<result<std::unique_ptr<device>>> open(std::string_view name, access_mode mode);
    /// Ends it for the server; no request of it is under way. Completes when: the server has answered, if the device is open there. A server at
    /// which a disk hangs answers EBUSY and closes the device later, which is success too. On cancel: as rtrs::client::write(). Errors:
    /// those of rtrs::client::write(). Lifetime: this outlives it. Shard: the session's.
    task<result<void>> close(std::unique_ptr<device> d);
    /// How long it tries to open a device again that another client, our own last session perhaps, still has.
    static constexpr std::chrono::seconds reopen_patience{30};

private:
    friend class device;
    class opening;
    task<result<bool>> greet();
    task<result<open_response>> ask(const open_request& asked);
    task<result<open_response>> ask_patiently(const open_request& asked, std::uint64_t id);
    task<void> reopen();
    device* find(std::uint64_t id) const noexcept;

    rtrs::client& session_;
    std::uint64_t sessions_ = 0; ///< that have begun anew
    bool tells_runs_ = false;    ///< the server
    std::uint64_t next_id_ = 0;  ///< device::id_; an address may be another device's later
    std::vector<device*> devices_;
};

} // namespace verbena::rnbd

#pragma GCC visibility pop
