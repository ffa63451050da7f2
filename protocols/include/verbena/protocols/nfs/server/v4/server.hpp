// SPDX-License-Identifier: Apache-2.0
// The NFS version 4 program: minor versions 0 (7530), 1 (8881) and 2 (7862) over exports, with RDMA layouts where
// server_commons::pnfs is set.
// docs/internals/nfs4_server.md.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/nfs/server/v4/counters.hpp>
#include <verbena/protocols/nfs/wire/v4/types.hpp>
#include <verbena/protocols/rpc/program.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

namespace verbena {
class shard;
}
namespace verbena::nfs::v4 {
struct server_parts; // hidden, as it is private
}

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

struct server_commons;

/// One shard's program. Calls of all of the shard's connections go through it, whatever their transport. `commons`
/// and `here`, that shard, outlive it, and the calls to clients.
class server final : public rpc::program {
public:
    /// maxread and maxwrite.
    static constexpr std::uint32_t max_transfer = 1u << 20;
    /// The largest READDIR result.
    static constexpr std::uint32_t max_listing = 128u << 10;
    /// What one COPY copies, and how long it begins to copy more. The client asks for the rest.
    static constexpr std::uint64_t max_copy = 64u << 20;
    /// then it answers with what it has copied
    static constexpr duration max_copy_time = std::chrono::seconds(2);

    /// For calls of shard `here`. Both outlive it.
    server(server_commons& commons, const shard& here);
    ~server() override;

    std::uint32_t number() const noexcept override { return v4::program; }
    std::uint32_t low_version() const noexcept override { return v4::version; }
    std::uint32_t high_version() const noexcept override { return v4::version; }
    std::string_view name() const noexcept override { return "nfs"; }
    std::string_view procedure_name(std::uint32_t version, std::uint32_t procedure) const noexcept override;
    /// By repeats(): where there are sessions, slots answer repeats.
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }
    rpc::repeat_rule repeats(rpc::call& c) const noexcept override;
    /// Each COMPOUND: where there are sessions its slot keeps what it was answered with, and a repeat gets that.
    bool goes_on_alone(rpc::call& c) const noexcept override;
    bool calls_back() const noexcept override { return true; }
    bool admits(const rpc::peer& from) override;
    /// verbena_nfs4_*.
    metric_registrations expose(metric_registry& registry) const override;
    task<rpc::outcome> serve(rpc::call& c) override;

    /// What this shard's program has done. Any thread may read.
    const server_counters& counters() const noexcept;

private:
    std::unique_ptr<server_parts> parts_;
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
