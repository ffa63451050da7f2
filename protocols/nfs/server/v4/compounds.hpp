// SPDX-License-Identifier: Apache-2.0
// How a COMPOUND is served: alone, in a session, or without one in minor version 0; then one operation after the other.
#pragma once

#include "compound.hpp"

#include <verbena/core/task/task.hpp>
#include <verbena/protocols/nfs/server/v4/sessions.hpp>
#include <verbena/protocols/nfs/wire/v4/compound.hpp>
#include <verbena/protocols/rpc/program.hpp>

#include <cstddef>

namespace verbena::nfs::v4 {

/// Room for what most calls are answered.
inline constexpr std::size_t usual_results = 4096;

/// Whether what could not be read is there, but not in one piece.
inline bool lies_apart(const xdr::decoder& in) noexcept
{
    return !in.ok() && in.failure() == std::errc::no_buffer_space;
}
/// Who calls, by the server's key.
principal_digest caller_of(const server_commons& commons, const rpc::call& c) noexcept;

task<rpc::outcome> serve_compound(server_parts& server, rpc::call& c);
/// All operations that `k` has from here on, until one fails.
task<void> run_operations(compound& k);
/// What an operation does that a repeat may not do again.
bool changes_something(nfs_opnum4 operation) noexcept;

// --- Sessions (session_calls.cpp)

/// What begins by SEQUENCE, which `args` is at. `entire` is the COMPOUND from its beginning.
task<rpc::outcome> serve_in_session(server_parts& server, rpc::call& c, compound_arguments& args,
                                    const xdr::decoder& entire);

// --- Minor version 0 (v40_calls.cpp)

/// By the first of its operations that decides. `ahead` is the COMPOUND from its beginning.
rpc::repeat_rule repeat_rule_of(const server_commons& commons, xdr::decoder ahead) noexcept;
task<rpc::outcome> serve_v40(server_parts& server, rpc::call& c, compound_arguments& args,
                             const xdr::decoder* whole);
/// Has k.client be whoever the COMPOUND says it is of, where it has not said so by a session.
task<void> learn_client(compound& k);

} // namespace verbena::nfs::v4
