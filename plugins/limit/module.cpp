// SPDX-License-Identifier: Apache-2.0
// limit as a module.
#include "../filter_metrics.hpp"

#include <verbena/plugins/limit.hpp>
#include <verbena/plugins/modules.hpp>
#include <verbena/protocols/storage/module.hpp>

namespace verbena::filters {

namespace {

class limit_module final : public storage::filter_module {
public:
    std::vector<setting> settings() const override
    {
        const auto operations = [](const char* name, const char* whose) {
            return setting::number(name, {1, most_limited_operations}, 0,
                                   std::string("Operations of ") + whose + " a second")
                .optional("no limit");
        };
        const auto bytes = [](const char* name, const char* whose) {
            return setting::number(name, {least_limited_bytes, most_limited_bytes}, 0,
                                   std::string("Bytes that ") + whose + " may read and write a second")
                .optional("no limit");
        };
        return {
            operations("client_operations", "a client"),
            bytes("client_bytes", "a client"),
            operations("export_operations", "all clients together"),
            bytes("export_bytes", "all clients together"),
            setting::number("burst_milliseconds", {1, 60'000}, 1000,
                            "What is saved up at most: what the rate gives in this time"),
            setting::number("client_queue", {0, most_limited_waiting}, 64,
                            "Operations of one client that may wait; one more is answered \"try later\""),
            setting::number("export_queue", {0, most_limited_waiting}, 1024, "And of all clients together"),
            setting::number("clients", {1, most_limited_clients}, 1024, "Clients that are remembered"),
        };
    }
    void check(setting_values& values, const std::string& name) const override
    {
        for (const char* limit : {"client_operations", "client_bytes", "export_operations", "export_bytes"}) {
            if (values.find(limit) != nullptr)
                return;
        }
        throw config_error(
            name +
            ": limits nothing: write client_operations, client_bytes, export_operations or export_bytes");
    }
    void put_on(storage::opened_backend& on, const setting_values& values,
                const storage::open_context& context) override
    {
        const auto limit = [&](const char* name) {
            return values.find(name) != nullptr ? values.number(name) : std::uint64_t(0);
        };
        limit_options o;
        o.client_operations = limit("client_operations");
        o.client_bytes = limit("client_bytes");
        o.export_operations = limit("export_operations");
        o.export_bytes = limit("export_bytes");
        o.burst = std::chrono::milliseconds(values.number("burst_milliseconds"));
        o.client_queue = values.number("client_queue");
        o.export_queue = values.number("export_queue");
        o.clients = values.number("clients");
        auto made = open_limit(std::move(on.files), o);
        if (!made)
            refuse(context.name + ": filter limit", made.error());
        const limit_filter* filter = made->get();
        on.files = std::move(*made);
        metric_registry& r = context.metrics;
        on.metrics.push_back(expose_outcomes(r, context.label, "verbena_limit_operations_total",
                                             "Operations that met the filter limit, by what became of them.",
                                             6, [filter](const auto& add) {
                                                 const limit_counters c = filter->counters();
                                                 add("passed", c.passed);
                                                 add("waited", c.waited);
                                                 add("refused_client", c.refused_by_client);
                                                 add("refused_export", c.refused_by_export);
                                                 add("refused_newcomer", c.refused_newcomers);
                                                 add("cancelled", c.cancelled);
                                             }));
        on.metrics.push_back(expose_number(
            r, context.label, "verbena_limit_wait_seconds_total",
            "How long operations waited for the filter limit, added up.", metric_type::counter, "seconds",
            [filter] { return static_cast<double>(filter->counters().waited_nanoseconds) * 1e-9; }));
        on.metrics.push_back(
            expose_number(r, context.label, "verbena_limit_waiting",
                          "Operations that wait for the filter limit now.", metric_type::gauge, "operations",
                          [filter] { return static_cast<double>(filter->counters().waiting); }));
        on.metrics.push_back(
            expose_number(r, context.label, "verbena_limit_clients",
                          "Clients that the filter limit remembers now.", metric_type::gauge, "clients",
                          [filter] { return static_cast<double>(filter->counters().clients); }));
    }
};

} // namespace

} // namespace verbena::filters

const verbena::module_descriptor verbena::modules::limit = {
    .name = "limit",
    .version = VERBENA_VERSION,
    .summary = "so many operations and bytes a second, for each client and for all",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<filters::limit_module>(); },
};
