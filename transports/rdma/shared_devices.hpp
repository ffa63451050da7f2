// SPDX-License-Identifier: Apache-2.0
// Devices as the process has them: librdmacm opens each once, for all shards, and never closes one on its own.
//
// The kernel may wait with the removal of a device until all its files are closed (those of rxe do). So
// the last shard to let go of a removed device closes them.
#pragma once

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/transports/rdma.hpp>

#include <infiniband/verbs.h>

#include <bit>
#include <cstdint>
#include <memory>

namespace verbena::rdma {

class context_impl;

/// Of a queue pair or completion queue; no two of a process have the same, whereas the device gives numbers and the
/// allocator gives addresses to several in turn.
using serial = std::uint64_t;
serial next_serial() noexcept;
/// As the context that rdma-core keeps with an object.
inline void* as_context(serial s) noexcept { return std::bit_cast<void*>(static_cast<std::uintptr_t>(s)); }
inline serial serial_of(const void* context) noexcept { return reinterpret_cast<std::uintptr_t>(context); }

/// What a device said by itself. The pointer is for comparison only.
struct device_notice {
    ibv_context* on;
    device_event what;
    serial about = 0; ///< queue pair or completion queue
};

/// Where one shard's context hears of what another shard read. Shared with messages under way.
class notice_box {
public:
    notice_box(reactor& r, context_impl& c) noexcept : shard_(r), target_(&c) {}
    /// The context goes; on its shard.
    void close() noexcept { target_ = nullptr; }
    /// Any thread.
    static void post(const std::shared_ptr<notice_box>& to, const device_notice& n);

private:
    class message;
    reactor& shard_;
    context_impl* target_; // of the shard's thread
};

/// Any thread.
namespace shared_devices {

/// Opens what librdmacm has not opened yet, and keeps all of it from being closed there. Blocks.
void note_all();
/// `user` uses the device from now on. False: the device is gone.
bool enter(ibv_context* d, std::shared_ptr<notice_box> user);
/// Undoes enter(); the last user of a device that was removed closes its files, which blocks.
void leave(ibv_context* d, const notice_box& user) noexcept;
/// Nobody can enter it any more.
void mark_removed(ibv_context* d) noexcept;
/// Whether the system has taken it away, or is about to.
bool has_gone(const ibv_context* d) noexcept;
/// Closes the files of those that went and that no shard uses.
void close_unused() noexcept;
/// Hands a notice to each of the device's users.
void tell(const device_notice& n);

} // namespace shared_devices

} // namespace verbena::rdma
