// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rpc/message.hpp>

#include <array>
#include <string>

namespace verbena::rpc {
namespace {

enum class reply_status : std::uint32_t { accepted = 0, denied = 1 };

class accept_category_type final : public std::error_category {
public:
    const char* name() const noexcept override { return "rpc"; }
    std::string message(int value) const override { return to_string(static_cast<accept_status>(value)); }
};

class auth_category_type final : public std::error_category {
public:
    const char* name() const noexcept override { return "rpc-auth"; }
    std::string message(int value) const override { return to_string(static_cast<auth_status>(value)); }
};

/// False: its body is longer than it may be. That is told from a message that merely ends.
bool decode_auth(xdr::decoder& in, opaque_auth& auth) noexcept
{
    auth.flavor = static_cast<auth_flavor>(in.u32());
    const std::uint32_t length = in.u32();
    if (length > max_auth_body) {
        in.fail("opaque longer than its limit");
        return false;
    }
    auth.body = in.opaque_fixed(length);
    return true;
}

void encode_auth(xdr::encoder& out, const opaque_auth& auth) noexcept
{
    out.u32(static_cast<std::uint32_t>(auth.flavor));
    out.opaque_var(auth.body);
}

} // namespace

const char* to_string(accept_status status) noexcept
{
    switch (status) {
    case accept_status::success: return "success";
    case accept_status::program_unavailable: return "program unavailable";
    case accept_status::program_mismatch: return "program version unavailable";
    case accept_status::procedure_unavailable: return "procedure unavailable";
    case accept_status::garbage_arguments: return "arguments could not be decoded";
    case accept_status::system_error: return "system error";
    }
    return "unknown accept status";
}

const char* to_string(auth_status status) noexcept
{
    switch (status) {
    case auth_status::ok: return "success";
    case auth_status::bad_credential: return "bad credential";
    case auth_status::rejected_credential: return "credential rejected: start a new session";
    case auth_status::bad_verifier: return "bad verifier";
    case auth_status::rejected_verifier: return "verifier expired or replayed";
    case auth_status::too_weak: return "rejected for security reasons";
    case auth_status::invalid_response: return "bogus response verifier";
    case auth_status::failed: return "authentication failed";
    case auth_status::kerberos_generic: return "Kerberos error";
    case auth_status::time_expired: return "credential expired";
    case auth_status::ticket_file: return "problem with the ticket file";
    case auth_status::decode: return "authenticator cannot be decoded";
    case auth_status::network_address: return "wrong network address in the ticket";
    case auth_status::gss_credential_problem: return "no credentials for the user";
    case auth_status::gss_context_problem: return "problem with the security context";
    }
    return "unknown authentication status";
}

const std::error_category& accept_category() noexcept
{
    static const accept_category_type category;
    return category;
}

const std::error_category& auth_category() noexcept
{
    static const auth_category_type category;
    return category;
}

std::error_code make_error_code(accept_status status) noexcept
{
    return {static_cast<int>(status), accept_category()};
}

std::error_code make_error_code(auth_status status) noexcept
{
    return {static_cast<int>(status), auth_category()};
}

std::optional<message_prefix> peek(std::span<const std::byte> message) noexcept
{
    if (message.size() < 8)
        return std::nullopt;
    const std::uint32_t type = xdr::load_u32(message.data() + 4);
    if (type > static_cast<std::uint32_t>(message_type::reply))
        return std::nullopt;
    return message_prefix{xdr::load_u32(message.data()), static_cast<message_type>(type)};
}

call_verdict decode(xdr::decoder& in, call_header& header) noexcept
{
    header.xid = in.u32();
    const std::uint32_t type = in.u32();
    const std::uint32_t version = in.u32();
    if (!in.ok())
        return call_verdict::unanswerable;
    if (type != static_cast<std::uint32_t>(message_type::call)) {
        in.fail("RPC message is not a call");
        return call_verdict::unanswerable;
    }
    if (version != protocol_version) {
        in.fail("RPC version is not 2");
        return call_verdict::rpc_mismatch;
    }
    header.program = in.u32();
    header.version = in.u32();
    header.procedure = in.u32();
    if (!decode_auth(in, header.credential))
        return call_verdict::bad_credential;
    if (in.ok() && !decode_auth(in, header.verifier))
        return call_verdict::bad_verifier;
    return in.ok() ? call_verdict::good : call_verdict::unanswerable;
}

void encode(xdr::encoder& out, const call_header& header) noexcept
{
    out.u32(header.xid);
    out.u32(static_cast<std::uint32_t>(message_type::call));
    out.u32(protocol_version);
    out.u32(header.program);
    out.u32(header.version);
    out.u32(header.procedure);
    encode_auth(out, header.credential);
    encode_auth(out, header.verifier);
}

reply_header reply_header::accepted_with(std::uint32_t xid, accept_status status) noexcept
{
    reply_header header;
    header.xid = xid;
    header.accept = status;
    return header;
}

reply_header reply_header::program_mismatch(std::uint32_t xid, std::uint32_t low, std::uint32_t high) noexcept
{
    reply_header header = accepted_with(xid, accept_status::program_mismatch);
    header.low = low;
    header.high = high;
    return header;
}

reply_header reply_header::rpc_mismatch(std::uint32_t xid) noexcept
{
    reply_header header;
    header.xid = xid;
    header.accepted = false;
    header.reject = reject_status::rpc_mismatch;
    header.low = header.high = protocol_version;
    return header;
}

reply_header reply_header::denied(std::uint32_t xid, auth_status status) noexcept
{
    reply_header header;
    header.xid = xid;
    header.accepted = false;
    header.reject = reject_status::auth_error;
    header.auth = status;
    return header;
}

void decode(xdr::decoder& in, reply_header& header) noexcept
{
    header = {};
    header.xid = in.u32();
    if (in.u32() != static_cast<std::uint32_t>(message_type::reply))
        return in.fail("RPC message is not a reply");
    const std::uint32_t status = in.u32();
    if (status == static_cast<std::uint32_t>(reply_status::accepted)) {
        (void)decode_auth(in, header.verifier); // what is wrong with it `in` knows
        const std::uint32_t accept = in.u32();
        if (accept > static_cast<std::uint32_t>(accept_status::system_error))
            return in.fail("unknown accept status");
        header.accept = static_cast<accept_status>(accept);
        if (header.accept == accept_status::program_mismatch) {
            header.low = in.u32();
            header.high = in.u32();
        }
    } else if (status == static_cast<std::uint32_t>(reply_status::denied)) {
        header.accepted = false;
        const std::uint32_t reject = in.u32();
        header.reject = static_cast<reject_status>(reject);
        if (header.reject == reject_status::rpc_mismatch) {
            header.low = in.u32();
            header.high = in.u32();
        } else if (header.reject == reject_status::auth_error) {
            // Later RFCs add values; an unknown one is still a refusal.
            header.auth = static_cast<auth_status>(in.u32());
            if (header.auth == auth_status::ok)
                in.fail("RPC call rejected with AUTH_OK");
        } else {
            in.fail("unknown reject status");
        }
    } else {
        in.fail("unknown reply status");
    }
}

void encode(xdr::encoder& out, const reply_header& header) noexcept
{
    // Nearly all replies, with one look at the room instead of six.
    if (header.accepted && header.accept == accept_status::success && header.verifier.body.empty()) {
        const std::array<std::uint32_t, 6> words = {header.xid,
                                                    static_cast<std::uint32_t>(message_type::reply),
                                                    static_cast<std::uint32_t>(reply_status::accepted),
                                                    static_cast<std::uint32_t>(header.verifier.flavor),
                                                    0, // the length of its body
                                                    static_cast<std::uint32_t>(accept_status::success)};
        const std::span<std::byte> to = out.reserve(4 * words.size());
        if (!to.empty()) {
            for (std::size_t i = 0; i < words.size(); ++i)
                xdr::store_u32(to.data() + 4 * i, words[i]);
        }
        return;
    }
    out.u32(header.xid);
    out.u32(static_cast<std::uint32_t>(message_type::reply));
    if (header.accepted) {
        out.u32(static_cast<std::uint32_t>(reply_status::accepted));
        encode_auth(out, header.verifier);
        out.u32(static_cast<std::uint32_t>(header.accept));
        if (header.accept == accept_status::program_mismatch) {
            out.u32(header.low);
            out.u32(header.high);
        }
        return;
    }
    out.u32(static_cast<std::uint32_t>(reply_status::denied));
    out.u32(static_cast<std::uint32_t>(header.reject));
    if (header.reject == reject_status::rpc_mismatch) {
        out.u32(header.low);
        out.u32(header.high);
    } else {
        out.u32(static_cast<std::uint32_t>(header.auth));
    }
}

error to_error(const reply_header& header) noexcept
{
    if (header.accepted)
        return {make_error_code(header.accept), "RPC call accepted but not executed", header.high};
    if (header.reject == reject_status::auth_error)
        return {make_error_code(header.auth), "RPC call rejected"};
    return {std::errc::protocol_not_supported, "RPC version rejected", header.high};
}

} // namespace verbena::rpc
