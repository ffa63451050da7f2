// SPDX-License-Identifier: Apache-2.0
// What a shard's list of requests says, as text.
#pragma once

#include <verbena/core/reactor/request_list.hpp>
#include <verbena/core/task/trace_name.hpp>

#include <string>
#include <vector>

namespace verbena::test {

/// "192.0.2.1:1023 tcp test 3 WAIT: event", the oldest first, without the addresses of what is waited for.
inline std::vector<std::string> requests_in(reactor& shard)
{
    std::vector<std::string> all;
    request_list::reader reader(shard.requests());
    while (const listed_request* const one = reader.next()) {
        request_report r;
        one->report(r);
        std::string text;
        for (const std::string_view part : {r.peer.view(), r.transport.view(), r.protocol.view(),
                                            r.version.view(), r.operation.view(), r.object.view()})
            text.append(part).append(part.empty() ? "" : " ");
        std::string waits = shard.requests().waits_for(*one);
        text += "waits for " + waits.substr(0, waits.find(" 0x"));
        all.push_back(std::move(text));
    }
    return all;
}

/// The names of their calls, without the numbers of the connections.
inline std::vector<std::string> calls_in(reactor& shard)
{
    std::vector<std::string> all;
    request_list::reader reader(shard.requests());
    while (const listed_request* const one = reader.next()) {
        request_report r;
        one->report(r);
        const std::string name(trace_name(r.trace).view());
        all.push_back(name.substr(name.find('.') + 1));
    }
    return all;
}

} // namespace verbena::test
