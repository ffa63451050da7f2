// SPDX-License-Identifier: Apache-2.0
// The program, as the dispatcher sees it.
#include <verbena/protocols/nfs/server/v4/server.hpp>

#include "compounds.hpp"

namespace verbena::nfs::v4 {

namespace {

task<rpc::outcome> end_with(rpc::outcome outcome) { co_return outcome; }

} // namespace

void server_counters::note(nfs_opnum4 operation, nfsstat4 status) noexcept
{
    const auto kind = operation <= last_operation ? static_cast<std::size_t>(operation) : 0;
    const bool later = status == nfsstat4::delay || status == nfsstat4::grace;
    const result_class how = status == nfsstat4::ok ? result_class::ok
                             : later                ? result_class::later
                                                    : result_class::failed;
    operations[kind][static_cast<std::size_t>(how)].add();
    if (status != nfsstat4::ok)
        errors.note(static_cast<std::uint32_t>(kind), static_cast<std::uint32_t>(status));
}

server::server(server_commons& commons, const shard& here)
    : parts_(std::make_unique<server_parts>(commons, here))
{
}

server::~server() = default;

bool server::admits(const rpc::peer& from) { return parts_->handles.admits(from); }

const server_counters& server::counters() const noexcept { return parts_->counters; }

std::string_view server::procedure_name(std::uint32_t of_version, std::uint32_t number) const noexcept
{
    if (of_version != version)
        return {};
    return number == 0 ? "NULL" : number == 1 ? "COMPOUND" : std::string_view();
}

task<rpc::outcome> server::serve(rpc::call& c)
{
    switch (procedure(c.header().procedure)) {
    case procedure::null: return end_with(rpc::outcome::success);
    case procedure::compound: return serve_compound(*parts_, c);
    }
    return end_with(rpc::outcome::proc_unavail);
}

rpc::repeat_rule server::repeats(rpc::call& c) const noexcept
{
    if (c.header().procedure != std::uint32_t(procedure::compound))
        return rpc::repeat_rule::runs_again;
    return repeat_rule_of(parts_->commons, c.args());
}

bool server::goes_on_alone(rpc::call& c) const noexcept
{
    return c.header().procedure == std::uint32_t(procedure::compound);
}

} // namespace verbena::nfs::v4
