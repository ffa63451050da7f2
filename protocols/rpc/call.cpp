// SPDX-License-Identifier: Apache-2.0
#include "argument_lost.hpp"

#include <verbena/protocols/rpc/auth_sys.hpp>
#include <verbena/protocols/rpc/program.hpp>

namespace verbena::rpc {
namespace {

class argument_category final : public std::error_category {
public:
    const char* name() const noexcept override { return "rpc argument"; }
    std::string message(int) const override
    {
        return std::make_error_code(std::errc::connection_aborted).message();
    }
    std::error_condition default_error_condition(int) const noexcept override
    {
        return std::errc::connection_aborted;
    }
};

} // namespace

std::error_code argument_lost() noexcept
{
    static const argument_category category;
    return {1, category};
}

void call::report(request_report& into) const noexcept
{
    into.trace = trace();
    into.peer.append(peer_->name);
    into.transport.append(peer_->transport);
    if (program_ == nullptr) {
        into.protocol.append("rpc");
        return;
    }
    into.protocol.append(program_->name());
    into.version.append(header_.version);
    const std::string_view name = program_->procedure_name(header_.version, header_.procedure);
    into.operation.append(name.empty() ? "unknown" : name);
    if (detail() != nullptr)
        detail()->describe(into);
}

auth_status call::authenticate() noexcept
{
    who_ = principal(); // of a call that this object was before
    const opaque_auth& credential = header_.credential;
    switch (credential.flavor) {
    case auth_flavor::none: break;
    case auth_flavor::sys: {
        const auto decoded = decode_auth_sys(credential.body);
        if (!decoded)
            return auth_status::bad_credential;
        who_ = principal(decoded->uid, decoded->gid, decoded->other_groups());
        break;
    }
    case auth_flavor::tls:
        // RFC 9289 4.1: a probe by the NULL procedure, its body empty. Its answer's verifier would say
        // STARTTLS if that were on offer.
        if (header_.procedure != 0 || !credential.body.empty())
            return auth_status::bad_credential;
        break;
    default: return auth_status::rejected_credential;
    }
    if (header_.verifier.flavor != auth_flavor::none || !header_.verifier.body.empty())
        return auth_status::bad_verifier;
    return auth_status::ok;
}

} // namespace verbena::rpc
