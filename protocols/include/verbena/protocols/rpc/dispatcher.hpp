// SPDX-License-Identifier: Apache-2.0
// Routes calls to programs, answers what isn't one, and counts.
#pragma once

#include <verbena/core/log.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/protocols/rpc/program.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::rpc {

class duplicate_request_cache;

/// Calls to one procedure over one transport.
struct procedure_stats {
    counter calls;  ///< that came
    counter errors; ///< answered with anything but SUCCESS; what a program's own status says doesn't count
    counter exceptions; ///< calls whose procedure threw: answered with SYSTEM_ERR, and counted as errors too
    counter dropped;    ///< that were not answered
    counter bytes_in;   ///< of the call messages, payloads included
    counter bytes_out;  ///< of the reply messages, payloads included
    log_linear_histogram latency; ///< from the whole call to the whole reply
};

/// Calls that reached no procedure, by what they were answered with.
struct refusal_stats {
    counter unanswerable;          ///< not answered
    counter rpc_mismatch;          ///< another version of RPC
    counter auth_error;            ///< the credential, or what a program asks for
    counter program_unavailable;   ///< no such program here
    counter program_mismatch;      ///< not in that version
    counter procedure_unavailable; ///< no such procedure in it
};

/// Routes calls to programs by number and version, answers what reaches none, and counts. Shard-local, except
/// where it says any thread.
class service_dispatcher final : public dispatcher {
public:
    /// Procedures of one version that have counts of their own; others are counted together.
    static constexpr std::uint32_t max_procedures = 64;
    /// Transports that have counts of their own: "tcp", "iwarp", "rdma", "loop" and "other".
    static constexpr std::size_t transport_count = 5;

    /// With `duplicates`, which outlives it, repeats of calls that must not run twice are answered from
    /// there.
    explicit service_dispatcher(reactor& shard, duplicate_request_cache* duplicates = nullptr);
    ~service_dispatcher() override;

    /// Adds a program, which must outlive the dispatcher. Before the first call.
    void add(program& p);

    task<bool> dispatch(call& c) override;
    bool admits(const peer& from) override;

    /// Which procedure counts belong to. Views of literals, or of the program's names.
    struct procedure_label {
        std::string_view program; ///< its name
        std::uint32_t version;
        std::string_view procedure; ///< its name; empty: those beyond max_procedures
        std::string_view transport; ///< one of transport_count
    };
    /// Shows the counts of every procedure that was ever called. Any thread.
    void for_each(const std::function<void(const procedure_label&, const procedure_stats&)>& show) const;
    const refusal_stats& refusals() const noexcept { return refusals_; }

private:
    struct version_entry;
    struct procedure_table;

    version_entry* find(std::uint32_t program, std::uint32_t version, std::uint32_t& low,
                        std::uint32_t& high) noexcept;
    task<outcome> serve_once(program& p, call& c);
    task<outcome> serve_in_turn(program& p, call& c);
    procedure_stats& stats_of(version_entry& entry, std::string_view transport, std::uint32_t procedure);

    reactor& shard_;
    duplicate_request_cache* duplicates_;
    std::vector<std::unique_ptr<version_entry>> versions_;
    std::vector<program*> programs_;
    refusal_stats refusals_;
    log_limiter exceptions_logged_;
};

/// Registers what `calls` counts by procedure, which outlives what it returns: once for each shard, when it has its programs.
/// Any thread.
metric_registrations expose(metric_registry& registry, const service_dispatcher& calls);

} // namespace verbena::rpc

#pragma GCC visibility pop
