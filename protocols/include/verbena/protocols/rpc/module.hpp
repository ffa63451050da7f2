// SPDX-License-Identifier: Apache-2.0
// The role of modules that serve RPC programs.
#pragma once

#include <verbena/core/module/protocol_module.hpp>
#include <verbena/core/verbs/side_connections.hpp>
#include <verbena/protocols/rpc/program.hpp>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::rpc {

/// Programs, served over byte streams and as RPC-over-RDMA.
class program_module : public protocol_module {
public:
    /// Versions that one program may have.
    static constexpr std::uint32_t max_versions = 64;

    std::string_view role_word() const noexcept final { return "program"; }
    /// The protocol on whose listeners it is served, and with which it comes and goes; empty for one with its own.
    virtual std::string_view served_with() const noexcept { return {}; }
    /// The programs of one shard, made there and destroyed there, used there alone. Called once for each shard, one after the
    /// other, after start(). What it throws ends the start; so does no program, a null one, and one of a number and version that another one
    /// of the same listeners has. Programs of one number may have different versions.
    virtual std::vector<std::unique_ptr<program>> make_programs(shard& s) = 0;
    /// A device of `transport` ("iwarp", "rdma") by whose listeners the programs will be called, and who has connections to
    /// them that are not for RPC; nullptr: nobody, and each connection is for RPC. One module may answer for a device.
    ///
    /// Called once for each such transport, behind make_programs() of all shards and before any listener is open, on a
    /// thread that is no shard. `device` outlives the module; one of `rdma` knows nothing of itself yet
    /// (device::query()). What this yields outlives the listeners' tasks. What it throws ends the start.
    virtual verbs::side_connections* connections_on(verbs::device& device, std::string_view transport)
    {
        (void)device, (void)transport;
        return nullptr;
    }
};

} // namespace verbena::rpc

#pragma GCC visibility pop
