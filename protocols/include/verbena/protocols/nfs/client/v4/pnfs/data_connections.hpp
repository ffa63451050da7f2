// SPDX-License-Identifier: Apache-2.0
// A client's connections to data servers of RDMA layouts: docs/internals/pnfs.md, "The connection".
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/semaphore.hpp>
#include <verbena/core/verbs/verbs.hpp>
#include <verbena/protocols/nfs/client/v4/session.hpp>
#include <verbena/protocols/nfs/wire/v4/rdma_layout_connect.hpp>
#include <verbena/protocols/rpc/payload.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4::pnfs {

/// How data servers are reached, and how much is under way at once.
struct data_connection_options {
    unsigned connections = 2; ///< to each device; files share them
    std::uint32_t requests =
        128; ///< RDMA Reads and Writes under way at once on one of them; what comes on top waits
    std::uint32_t reads = 16; ///< RDMA Reads of those that the peer has outstanding (ORD), if it allows
    duration timeout = std::chrono::seconds(10); ///< of connection set-up
    duration rest =
        std::chrono::seconds(10); ///< after it failed, until it is tried again: twice that the next time
    duration most_rest = std::chrono::minutes(5); ///< the longest of these
    duration io_limit = std::chrono::seconds(
        30); ///< a connection on which nothing of what is under way completes for so long ends
    /// The text by which the context connects, of a device's netaddr4. Without one: of the netids rdma and rdma6.
    std::function<result<std::string>(std::string_view netid, std::string_view address)> address_of;
};

/// A connection to a data server. Nobody sends messages by it: if one comes, it ends.
///
/// This holds for all its tasks. Completes when: all work requests have. On cancel: ECANCELED; they can't be recalled, and the connection
/// keeps their memory until they complete. Errors: what ended the connection; ECANCELED. Lifetime: the connection outlives them.
/// Shard: the context's.
class data_connection final : private verbs::completion_handler {
public:
    /// One RDMA Read or Write: local bytes, and where they are at the peer.
    struct piece {
        std::span<std::byte> here;
        std::uint32_t handle = 0;
        std::uint64_t address = 0;
    };

    ~data_connection();
    data_connection(const data_connection&) = delete;

    /// Reads into the pieces, which lie in `memory`.
    task<result<void>> read(std::span<const piece> pieces, const lease& memory);
    /// Writes the pieces, whose memory `data` keeps. Once it completes, the memory is free, which does not mean that the bytes are placed: flush()
    /// tells that.
    task<result<void>> write(std::span<const piece> pieces, const rpc::payload& data);
    /// Reads a byte of the peer's into memory of the connection's own: the Read Response proves that all Writes before it are placed (RFC 5040 5.5). It
    /// needs no memory of the pool, all of which may wait for what comes behind it.
    task<result<void>> flush(std::uint32_t handle, std::uint64_t address);
    /// Waits for all that was posted before the call, also for what nobody waits for any more: until then a peer that takes its memory back ends the
    /// connection. Completes when: that has completed, or the connection ended. Errors: ECANCELED alone.
    task<result<void>> passed();
    /// Whether I/O can be posted: it was connected and has not ended.
    bool is_up() const noexcept { return pair_ != nullptr && !down_ && pair_->connected(); }
    /// Ends it; what is under way fails.
    void end(const error& why) noexcept;
    /// Waits until it has ended, deaf to the stop. Completes when: it has. Errors: none. Else as above.
    task<void> ended();

private:
    friend class data_connections;
    struct transfer {
        std::size_t left = 0;
        event over;
        verbs::status status = verbs::status::success;
        std::uint32_t vendor_error = 0;
    };
    struct slot {
        lease memory;
        std::shared_ptr<const void> keeper;
        transfer* of = nullptr; // nullptr: nobody waits any more
    };
    /// Ends a connection whose peer answers nothing: I/O by it has no other limit, and a recall waits for that.
    class watch final : public timer {
    public:
        explicit watch(data_connection& of) noexcept : of_(of) {}
        /// Before something is posted.
        void begin();

    private:
        void on_timer() noexcept override;
        data_connection& of_;
        std::uint64_t seen_ = 0;
    };
    data_connection(const data_connection_options& o, reactor& shard);
    result<void> begin(std::unique_ptr<verbs::queue_pair> pair, buffer_pool& pool);
    task<result<void>> run(verbs::opcode what, std::span<const piece> pieces, const lease* memory,
                           const rpc::payload* data);
    void on_completions(std::span<const verbs::completion> batch) noexcept override;
    void on_disconnected(const error& cause) noexcept override;

    std::unique_ptr<verbs::queue_pair> pair_;
    std::vector<slot> slots_;
    std::vector<std::uint32_t> free_;
    semaphore room_;
    reactor& shard_;
    const duration limit_;
    std::uint64_t posted_ = 0;
    std::uint64_t completed_ = 0;
    event progress_; // each completion
    watch watch_{*this};
    lease own_; // receives of what nobody sends, and behind them where flush() reads to
    bool down_ = false;
    error cause_;
    event ended_;
};

/// Why there is no connection to a device at the moment.
enum class no_connection : std::uint8_t {
    unknown_device, ///< the server does not know it (GETDEVICEINFO), or knows the client by another id
    no_address,     ///< it tells an address that none can be made to
    refused,        ///< too many, or no room: by the data server's answer
    failed,         ///< nobody answers there, or nobody who is a data server
};

/// The connections of one client session, by device id. `client` is the session's, and `device` what they go by. It outlives what it
/// yields. Shard-local.
class data_connections {
public:
    /// All outlive it. Where the device needs local keys, `pool` is registered when the first connection is made, and what is read and written
    /// lies in it.
    data_connections(client_session& session, verbs::context& device, buffer_pool& pool,
                     data_connection_options options = {});
    data_connections(const data_connections&) = delete;
    ~data_connections();

    /// What get() found.
    struct found {
        std::shared_ptr<data_connection> connection;   ///< empty: there is none
        no_connection why_not = no_connection::failed; ///< if there is none
        bool is_being_made = false;                    ///< likewise: nobody knows yet
    };
    /// A connection to the device: the same for the same `lane`, as long as it is up. If there is none, one is made beside, one at a time for each
    /// device, until close(); a device that has just failed is let rest.
    ///
    /// Completes when: there is one, can't be one, or `patience` is over. On cancel: none. What has begun goes on in both cases. Errors: as
    /// `found` says. Lifetime: this outlives it. Shard: the session's.
    task<found> get(deviceid4 device, std::size_t lane, duration patience = duration::max());
    /// Whether the server's devices that are known are all let rest: a layout would be of no use now.
    bool all_rest() const noexcept;
    /// Where the server says that the device is, as its netaddr4 has it: netid and address. Completes when: it has answered GETDEVICEINFO. On
    /// cancel: as client_session::run(). Errors: those of that, and bad_message. Lifetime: this outlives it. Shard: the session's.
    task<result<std::pair<std::string, std::string>>> address_of(deviceid4 device);
    /// Of such memory alone write() may send; else it is written by other ways.
    bool may_send(std::span<const std::byte> memory) const noexcept;
    /// Ends all connections, and makes no more. Completes when: they have ended. On cancel: likewise. Errors: none. Lifetime: as get(). Shard:
    /// likewise.
    task<void> close();

    /// What became of attempts to connect.
    struct counts {
        std::uint64_t made = 0;    ///< connections made
        std::uint64_t refused = 0; ///< by answers of data servers
        std::uint64_t failed = 0;  ///< attempts that did not come to an answer
    };
    /// Since this was made.
    const counts& count() const noexcept { return counts_; }
    /// Connections that are up.
    std::size_t up() const noexcept;

private:
    struct device_entry {
        deviceid4 id{};
        std::vector<std::shared_ptr<data_connection>> lanes;
        bool is_being_tried = false;
        event tried; // the attempt under way is over
        time_point rests_until{};
        duration rest = duration::zero();          // the last one, since there was a connection
        no_connection why = no_connection::failed; // while it rests
        std::uint64_t incarnation = 0;             // of the server that named it
        std::uint64_t used = 0;
    };
    static constexpr std::size_t max_devices = 64;
    std::shared_ptr<device_entry> entry_of(const deviceid4& device);
    struct outcome {
        std::shared_ptr<data_connection> connection;
        bool is_known = true; // not: the data server does not know the device id
        no_connection why = no_connection::failed;
    };
    task<void> try_device(std::shared_ptr<device_entry> e, std::size_t lane);
    task<outcome> connect(deviceid4 device);
    task<result<void>> prepare();

    client_session& session_;
    verbs::context& context_;
    buffer_pool& pool_;
    data_connection_options options_;
    semaphore prepare_turn_{1};
    std::unique_ptr<verbs::protection_domain> domain_; // once it can be used
    std::optional<scope> attempts_;
    bool is_closed_ = false;
    std::vector<std::shared_ptr<device_entry>> devices_;
    std::uint64_t uses_ = 0;
    counts counts_;
};

} // namespace verbena::nfs::v4::pnfs

#pragma GCC visibility pop
