// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/net/client_list.hpp>

#include <algorithm>

namespace verbena {

result<void> client_list::add(std::string_view text)
{
    if (text == "*") {
        everybody_ = true;
        return {};
    }
    auto prefix = ip_prefix::parse(text);
    if (!prefix)
        return prefix.error();
    if (prefixes_.size() == max_entries)
        return error(std::errc::invalid_argument, "more than 1024 entries in a list of clients");
    prefixes_.push_back(*prefix);
    return {};
}

bool client_list::admits(const ip_address& address, host_addresses& host) const
{
    if (everybody_)
        return true;
    for (const ip_prefix& prefix : prefixes_) {
        if (prefix.contains(address))
            return true;
    }
    return prefixes_.empty() && host.is_local(address);
}

bool client_list::admits_strangers() const noexcept
{
    return everybody_ || std::any_of(prefixes_.begin(), prefixes_.end(),
                                     [](const ip_prefix& prefix) { return prefix.includes_global(); });
}

std::vector<std::string> client_list::texts() const
{
    if (everybody_)
        return {"*"};
    if (prefixes_.empty())
        return {"localhost"};
    std::vector<std::string> texts;
    for (const ip_prefix& prefix : prefixes_)
        texts.push_back(prefix.text());
    return texts;
}

} // namespace verbena
