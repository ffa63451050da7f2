// SPDX-License-Identifier: Apache-2.0
// ONC RPC version 2 message headers (RFC 5531 section 9), for callers and servers.
//
// Views in the decoded structures point into the message.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/protocols/xdr/decoder.hpp>
#include <verbena/protocols/xdr/encoder.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <system_error>

#pragma GCC visibility push(default)

namespace verbena::rpc {

/// RPC's own version (RFC 5531 9).
inline constexpr std::uint32_t protocol_version = 2;
/// The body of a credential or verifier (RFC 5531 8.2).
inline constexpr std::uint32_t max_auth_body = 400;

/// Whether a message asks or answers (RFC 5531 9).
enum class message_type : std::uint32_t { call = 0, reply = 1 };

/// The kinds of credentials and verifiers (RFC 5531 8.2, and the registry behind it). Others may come.
enum class auth_flavor : std::uint32_t {
    none = 0,
    sys = 1,
    short_hand = 2,
    dh = 3,
    rpcsec_gss = 6,
    tls = 7, ///< RFC 9289 4.1
};

/// What became of a call that the server took (RFC 5531 9).
enum class accept_status : std::uint32_t {
    success = 0,
    program_unavailable = 1,
    program_mismatch = 2,
    procedure_unavailable = 3,
    garbage_arguments = 4,
    system_error = 5,
};

/// Why a server took no call (RFC 5531 9).
enum class reject_status : std::uint32_t { rpc_mismatch = 0, auth_error = 1 };

/// What is wrong with a credential or verifier (RFC 5531 9; RFC 2203 5.3.3.3 for GSS).
enum class auth_status : std::uint32_t {
    ok = 0,
    bad_credential = 1,
    rejected_credential = 2,
    bad_verifier = 3,
    rejected_verifier = 4,
    too_weak = 5,
    invalid_response = 6,
    failed = 7,
    kerberos_generic = 8,
    time_expired = 9,
    ticket_file = 10,
    decode = 11,
    network_address = 12,
    gss_credential_problem = 13, ///< RFC 2203 5.3.3.3
    gss_context_problem = 14,
};

/// The status in words, for logs and error codes. A literal.
const char* to_string(accept_status status) noexcept;
const char* to_string(auth_status status) noexcept;

/// Category "rpc": values of accept_status.
const std::error_category& accept_category() noexcept;
/// Category "rpc-auth": values of auth_status.
const std::error_category& auth_category() noexcept;
/// So a status stands in an error.
std::error_code make_error_code(accept_status status) noexcept;
std::error_code make_error_code(auth_status status) noexcept;

/// A credential or verifier (RFC 5531 8.2).
struct opaque_auth {
    auth_flavor flavor = auth_flavor::none; ///< what kind of credential it is
    std::span<const std::byte> body;        ///< at most max_auth_body bytes; borrowed from the message
};

/// The two words that every RPC message begins with.
struct message_prefix {
    std::uint32_t xid; ///< the caller's number of the call
    message_type type; ///< call, or reply
};

/// Nothing if the message is shorter than that or its type is neither call nor reply: such a
/// message cannot be answered.
std::optional<message_prefix> peek(std::span<const std::byte> message) noexcept;

/// What stands before the arguments of a call (RFC 5531 9). Borrows from the message.
struct call_header {
    std::uint32_t xid = 0; ///< the caller's number of the call
    std::uint32_t program = 0;
    std::uint32_t version = 0;
    std::uint32_t procedure = 0;
    opaque_auth credential;
    opaque_auth verifier;
};

/// The largest call header: a transport keeps at least this much of a call contiguous.
inline constexpr std::size_t max_call_header_size = 24 + 2 * (8 + max_auth_body);

/// What a call's header was found to be, and what answers it.
enum class call_verdict {
    good,
    unanswerable,   // not a call, or cut short: drop it
    rpc_mismatch,   // reply_header::rpc_mismatch
    bad_credential, ///< longer than max_auth_body: reply_header::denied(auth_status::bad_credential)
    bad_verifier,
};

/// Reads a call up to its arguments. `header.xid` is valid unless the verdict is unanswerable.
call_verdict decode(xdr::decoder& in, call_header& header) noexcept;

/// Writes a call up to its arguments.
void encode(xdr::encoder& out, const call_header& header) noexcept;

/// What stands before the results, or in place of them (RFC 5531 9). Borrows from the message.
struct reply_header {
    std::uint32_t xid = 0;
    bool accepted = true;
    accept_status accept = accept_status::success;      // if accepted
    opaque_auth verifier;                               // if accepted
    reject_status reject = reject_status::rpc_mismatch; ///< if not accepted
    auth_status auth = auth_status::ok;                 // if rejected with auth_error
    std::uint32_t low = 0, high = 0; ///< the versions that exist: program_mismatch and rpc_mismatch

    /// Whether results follow.
    bool success() const noexcept { return accepted && accept == accept_status::success; }

    /// @name Replies without results
    /// Headers to encode(), with an empty verifier.
    /// @{
    static reply_header accepted_with(std::uint32_t xid, accept_status status) noexcept;
    static reply_header program_mismatch(std::uint32_t xid, std::uint32_t low, std::uint32_t high) noexcept;
    static reply_header rpc_mismatch(std::uint32_t xid) noexcept;
    static reply_header denied(std::uint32_t xid, auth_status status) noexcept;
    /// @}
};

/// What a successful reply's header takes with an empty verifier.
inline constexpr std::size_t success_header_size = 24;
/// The largest header of a successful reply.
inline constexpr std::size_t max_success_header_size = success_header_size + max_auth_body;

/// Reads a reply up to its results, which follow only if success(). Failures stick to `in`.
void decode(xdr::decoder& in, reply_header& header) noexcept;

/// Writes a reply up to its results.
void encode(xdr::encoder& out, const reply_header& header) noexcept;

/// The error that a caller reports for a reply without success().
error to_error(const reply_header& header) noexcept;

} // namespace verbena::rpc

template<>
struct std::is_error_code_enum<verbena::rpc::accept_status> : std::true_type {};
template<>
struct std::is_error_code_enum<verbena::rpc::auth_status> : std::true_type {};

#pragma GCC visibility pop
