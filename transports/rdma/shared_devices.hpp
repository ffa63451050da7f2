// SPDX-License-Identifier: Apache-2.0
// Devices as the process has them: librdmacm opens each once, for all shards, and never closes one on its own.
//
// The kernel may wait with the removal of a device until all its files are closed (those of rxe do). So
// the last shard to let go of a removed device closes them.
#pragma once

#include <verbena/core/reactor.hpp>
#include <verbena/transports/rdma.hpp>

#include <infiniband/verbs.h>

#include <memory>

namespace verbena::rdma {

class context_impl;

/// What a device said by itself. The pointer is for comparison only.
struct device_notice {
    ibv_context* on;
    device_event what;
    std::uint32_t queue_pair = 0; ///< its number
    const ibv_cq* completion_queue = nullptr;
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
