// SPDX-License-Identifier: Apache-2.0
// The role of modules that serve RPC programs.
#pragma once

#include <verbena/core/module/protocol_module.hpp>
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
};

} // namespace verbena::rpc

#pragma GCC visibility pop
