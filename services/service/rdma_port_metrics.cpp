// SPDX-License-Identifier: Apache-2.0
#include "rdma_port_metrics.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

namespace verbena::services {

namespace {

constexpr std::size_t max_series = 64;

// As the kernel's drivers call them. docs/reference/metrics.md says which end had no receive.
constexpr std::string_view counters[] = {
    "send_rnr_err",      "rcvd_rnr_err",      "retry_rnr_exceeded_err", // rxe
    "out_of_buffer",     "rnr_nak_retry_err",                           // mlx5
    "rx_out_of_buffer",  "rnr_naks_rcvd",                               // bnxt_re
    "rq_num_rnr",        "sq_num_rnr",                                  // mlx4
    "responder_rnr_nak", "requester_rnr_nak",                           // mana
};

// The names in a folder, sorted so that the bound keeps the same ones.
std::vector<std::string> entries(const std::filesystem::path& folder)
{
    std::vector<std::string> names;
    std::error_code failed;
    std::filesystem::directory_iterator i(folder, failed);
    for (; !failed && i != std::filesystem::directory_iterator(); i.increment(failed))
        names.push_back(i->path().filename().string());
    std::ranges::sort(names);
    return names;
}

template<class T>
std::optional<T> number(std::string_view text)
{
    T n = 0;
    const char* const begin = text.data();
    const char* const end = begin + text.size();
    const auto [stop, failed] = std::from_chars(begin, end, n);
    return failed == std::errc() && stop == end ? std::optional(n) : std::nullopt;
}

// A number and perhaps the end of its line; else, or if there is more than fits, nothing.
std::optional<std::uint64_t> value_in(const std::filesystem::path& file)
{
    std::array<char, 32> text{}; // 20 digits are the most
    std::ifstream in(file, std::ios::binary);
    in.read(text.data(), text.size());
    std::string_view read(text.data(), static_cast<std::size_t>(in.gcount()));
    if (read.size() == text.size())
        return {};
    if (read.ends_with('\n'))
        read.remove_suffix(1);
    return number<std::uint64_t>(read);
}

bool chosen(const std::vector<device_choice>& of, const std::string& device, std::uint32_t port)
{
    return std::ranges::any_of(of, [&](const device_choice& c) {
        return (c.name.empty() || c.name == device) && (c.port == 0 || c.port == port);
    });
}

void collect(metric_sink& out, const std::vector<device_choice>& of, const std::filesystem::path& root)
{
    if (of.empty())
        return;
    for (const std::string& device : entries(root)) {
        for (const std::string& port : entries(root / device / "ports")) {
            const auto n = number<std::uint32_t>(port);
            if (!n || !chosen(of, device, *n))
                continue;
            for (const std::string_view counter : counters) {
                if (const auto v = value_in(root / device / "ports" / port / "hw_counters" / counter))
                    out.value({device, port, counter}, double(*v));
            }
        }
    }
}

} // namespace

metric_registry::registration expose_rdma_ports(metric_registry& registry, std::vector<device_choice> of,
                                                std::string root)
{
    return registry.add(
        {"verbena_rdma_receiver_not_ready_total",
         "Times that a message found no receive, as RDMA devices count them for all programs.",
         metric_type::counter,
         "events",
         {"device", "port", "counter"},
         max_series},
        [of = std::move(of), root = std::filesystem::path(std::move(root))](metric_sink& out) {
            collect(out, of, root);
        });
}

} // namespace verbena::services
