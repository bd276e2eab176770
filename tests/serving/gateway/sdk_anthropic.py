"""What becomes of the fields of Anthropic's request types, in the words of `sdk_table.py`."""

from tests.serving.gateway.sdk_types import Fields

MESSAGES: dict[str, Fields] = {
    "MessageCreateParamsStreaming": Fields(
        taken=(
            "max_tokens messages model output_config stop_sequences system tool_choice tools stream"
        ),
        ignored="cache_control diagnostics metadata service_tier thinking",
        default="speed",
        refused="container inference_geo",
        header="user_profile_id workspace_id",
    ),
    "MessageCreateParamsStreaming.messages": Fields(
        taken="UserMessageParam AssistantMessageParam SystemMessageParam",
    ),
    "MessageCreateParamsStreaming.output_config": Fields(
        taken="OutputConfigParam",
    ),
    "MessageCreateParamsStreaming.system": Fields(
        taken="TextBlockParam",
    ),
    "MessageCreateParamsStreaming.thinking": Fields(
        taken=(
            "ThinkingConfigDisabledParam ThinkingConfigBetweenToolsParam "
            "ThinkingConfigAdaptiveParam"
        ),
        refused="ThinkingConfigEnabledParam",
    ),
    "MessageCreateParamsStreaming.tool_choice": Fields(
        taken="ToolChoiceAutoParam ToolChoiceAnyParam ToolChoiceToolParam ToolChoiceNoneParam",
    ),
    "MessageCreateParamsStreaming.tools": Fields(
        taken="ToolParam",
        refused=(
            "ToolBash20250124Param CodeExecutionTool20250522Param "
            "CodeExecutionTool20250825Param CodeExecutionTool20260120Param "
            "CodeExecutionTool20260521Param BrowserToolset20260801Param "
            "MemoryTool20250818Param ComputerToolset20260801Param ToolTextEditor20250124Param "
            "ToolTextEditor20250429Param ToolTextEditor20250728Param "
            "WebSearchTool20250305Param WebFetchTool20250910Param WebSearchTool20260209Param "
            "WebFetchTool20260209Param WebFetchTool20260309Param WebSearchTool20260318Param "
            "WebFetchTool20260318Param ToolSearchToolBm25_20251119Param "
            "ToolSearchToolRegex20251119Param"
        ),
    ),
    "UserMessageParam": Fields(
        taken="content role",
    ),
    "UserMessageParam.content": Fields(
        taken="TextBlockParam ToolResultBlockParam",
        refused=(
            "ImageBlockParam DocumentBlockParam SearchResultBlockParam ThinkingBlockParam "
            "RedactedThinkingBlockParam ToolUseBlockParam ServerToolUseBlockParam "
            "WebSearchToolResultBlockParam WebFetchToolResultBlockParam "
            "CodeExecutionToolResultBlockParam BashCodeExecutionToolResultBlockParam "
            "TextEditorCodeExecutionToolResultBlockParam ToolSearchToolResultBlockParam "
            "ContainerUploadBlockParam"
        ),
    ),
    "AssistantMessageParam": Fields(
        taken="content role",
    ),
    "AssistantMessageParam.content": Fields(
        taken="TextBlockParam ThinkingBlockParam ToolUseBlockParam",
        refused=(
            "ImageBlockParam DocumentBlockParam SearchResultBlockParam "
            "RedactedThinkingBlockParam ToolResultBlockParam ServerToolUseBlockParam "
            "WebSearchToolResultBlockParam WebFetchToolResultBlockParam "
            "CodeExecutionToolResultBlockParam BashCodeExecutionToolResultBlockParam "
            "TextEditorCodeExecutionToolResultBlockParam ToolSearchToolResultBlockParam "
            "ContainerUploadBlockParam"
        ),
    ),
    "SystemMessageParam": Fields(
        taken="content role",
    ),
    "SystemMessageParam.content": Fields(
        taken="TextBlockParam",
    ),
    "OutputConfigParam": Fields(
        taken="effort format",
    ),
    "OutputConfigParam.format": Fields(
        taken="JSONOutputFormatParam",
    ),
    "TextBlockParam": Fields(
        taken="text type",
        ignored="cache_control",
        default="citations",
    ),
    "ThinkingConfigDisabledParam": Fields(
        taken="type",
    ),
    "ThinkingConfigBetweenToolsParam": Fields(
        taken="type",
    ),
    "ThinkingConfigAdaptiveParam": Fields(
        taken="type",
        ignored="display",
    ),
    "ToolChoiceAutoParam": Fields(
        taken="type disable_parallel_tool_use",
    ),
    "ToolChoiceAnyParam": Fields(
        taken="type disable_parallel_tool_use",
    ),
    "ToolChoiceToolParam": Fields(
        taken="name type disable_parallel_tool_use",
    ),
    "ToolChoiceNoneParam": Fields(
        taken="type",
    ),
    "ToolParam": Fields(
        taken="input_schema name description strict type",
        ignored=(
            "allowed_callers cache_control defer_loading eager_input_streaming input_examples"
        ),
    ),
    "ToolParam.input_schema": Fields(
        taken="InputSchemaTyped",
    ),
    "ToolResultBlockParam": Fields(
        taken="tool_use_id type content is_error",
        ignored="cache_control",
        refused="toolset_name",
    ),
    "ToolResultBlockParam.content": Fields(
        taken="TextBlockParam",
        refused=(
            "ImageBlockParam SearchResultBlockParam DocumentBlockParam "
            "ToolReferenceBlockParam BrowserStateBlockParam"
        ),
    ),
    "ThinkingBlockParam": Fields(
        taken="signature thinking type",
    ),
    "ToolUseBlockParam": Fields(
        taken="id input name type",
        ignored="cache_control caller",
        refused="toolset_name",
    ),
    "JSONOutputFormatParam": Fields(
        taken="schema type",
    ),
    "InputSchemaTyped": Fields(
        taken="type properties required",
    ),
}

_BODY, _COUNTED = "MessageCreateParamsStreaming", "MessageCountTokensParams"
COUNT_TOKENS = {name.replace(_BODY, _COUNTED): fields for name, fields in MESSAGES.items()} | {
    _COUNTED: Fields(
        taken="messages model output_config system tool_choice tools",
        ignored="cache_control thinking",
        default="speed",
        header="user_profile_id workspace_id",
    )
}
"""What is counted is what would be sent."""
