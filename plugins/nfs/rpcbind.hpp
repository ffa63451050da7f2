// SPDX-License-Identifier: Apache-2.0
// Tells rpcbind where NFS and MOUNT are served (RFC 1833), so that clients find them without being
// told ports.
#pragma once

#include <verbena/protocols/rpc/module.hpp>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace verbena::nfs {

/// Holds the registrations until it is destroyed. Blocks, a second at most for each call and
/// each place that is tried: for set-up.
class rpcbind_registration {
public:
    rpcbind_registration() = default;
    /// Registers the first listener of each netid (tcp, tcp6, rdma, rdma6), if rpcbind answers and no NFS
    /// server is registered. What one left behind who was killed is removed first: where nobody but this one can
    /// listen (`listeners` are open), or where TCP or UDP is refused; nothing, unless rpcbind's socket is
    /// known to be of this process's network namespace.
    rpcbind_registration(std::span<const listen_place> listeners, bool has_mount);
    ~rpcbind_registration();
    rpcbind_registration(rpcbind_registration&& other) noexcept
        : held_(std::exchange(other.held_, {})), summary_(std::move(other.summary_))
    {
    }
    rpcbind_registration& operator=(rpcbind_registration&& other) noexcept
    {
        std::swap(held_, other.held_);
        std::swap(summary_, other.summary_);
        return *this;
    }

    /// One line for the start-up: what was registered, or why nothing was.
    const std::string& summary() const noexcept { return summary_; }

private:
    struct entry {
        std::uint32_t program;
        std::uint32_t version;
        std::string netid;
        std::string address;
    };
    std::vector<entry> held_;
    std::string summary_;
};

} // namespace verbena::nfs
