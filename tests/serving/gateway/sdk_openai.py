"""What becomes of the fields of OpenAI's request types, in the words of `sdk_table.py`."""

from tests.serving.gateway.sdk_types import Fields

CHAT: dict[str, Fields] = {
    "CompletionCreateParamsStreaming": Fields(
        taken=(
            "messages model frequency_penalty logit_bias logprobs max_completion_tokens "
            "max_tokens n parallel_tool_calls presence_penalty reasoning_effort "
            "response_format seed service_tier stop stream_options temperature tool_choice "
            "tools top_logprobs top_p stream"
        ),
        ignored=(
            "metadata prediction prompt_cache_key prompt_cache_options prompt_cache_retention "
            "safety_identifier user verbosity"
        ),
        default="modalities store",
        refused="audio function_call functions moderation web_search_options",
    ),
    "CompletionCreateParamsStreaming.messages": Fields(
        taken=(
            "ChatCompletionDeveloperMessageParam ChatCompletionSystemMessageParam "
            "ChatCompletionUserMessageParam ChatCompletionAssistantMessageParam "
            "ChatCompletionToolMessageParam"
        ),
        refused="ChatCompletionFunctionMessageParam",
    ),
    "CompletionCreateParamsStreaming.response_format": Fields(
        taken="ResponseFormatText ResponseFormatJSONSchema ResponseFormatJSONObject",
    ),
    "CompletionCreateParamsStreaming.stream_options": Fields(
        taken="ChatCompletionStreamOptionsParam",
    ),
    "CompletionCreateParamsStreaming.tool_choice": Fields(
        taken="ChatCompletionAllowedToolChoiceParam ChatCompletionNamedToolChoiceParam",
        refused="ChatCompletionNamedToolChoiceCustomParam",
    ),
    "CompletionCreateParamsStreaming.tools": Fields(
        taken="ChatCompletionFunctionToolParam",
        refused="ChatCompletionCustomToolParam",
    ),
    "ChatCompletionDeveloperMessageParam": Fields(
        taken="content role name",
    ),
    "ChatCompletionDeveloperMessageParam.content": Fields(
        taken="ChatCompletionContentPartTextParam",
    ),
    "ChatCompletionSystemMessageParam": Fields(
        taken="content role name",
    ),
    "ChatCompletionSystemMessageParam.content": Fields(
        taken="ChatCompletionContentPartTextParam",
    ),
    "ChatCompletionUserMessageParam": Fields(
        taken="content role name",
    ),
    "ChatCompletionUserMessageParam.content": Fields(
        taken="ChatCompletionContentPartTextParam",
        refused=(
            "ChatCompletionContentPartImageParam ChatCompletionContentPartInputAudioParam File"
        ),
    ),
    "ChatCompletionAssistantMessageParam": Fields(
        taken="role content name refusal tool_calls",
        refused="audio function_call",
    ),
    "ChatCompletionAssistantMessageParam.content": Fields(
        taken="ChatCompletionContentPartTextParam ChatCompletionContentPartRefusalParam",
    ),
    "ChatCompletionAssistantMessageParam.tool_calls": Fields(
        taken="ChatCompletionMessageFunctionToolCallParam",
        refused="ChatCompletionMessageCustomToolCallParam",
    ),
    "ChatCompletionToolMessageParam": Fields(
        taken="content role tool_call_id",
    ),
    "ChatCompletionToolMessageParam.content": Fields(
        taken="ChatCompletionContentPartTextParam",
    ),
    "ResponseFormatText": Fields(
        taken="type",
    ),
    "ResponseFormatJSONSchema": Fields(
        taken="json_schema type",
    ),
    "ResponseFormatJSONSchema.json_schema": Fields(
        taken="JSONSchema",
    ),
    "ResponseFormatJSONObject": Fields(
        taken="type",
    ),
    "ChatCompletionStreamOptionsParam": Fields(
        taken="include_usage",
        ignored="include_obfuscation",
    ),
    "ChatCompletionAllowedToolChoiceParam": Fields(
        taken="allowed_tools type",
    ),
    "ChatCompletionAllowedToolChoiceParam.allowed_tools": Fields(
        taken="ChatCompletionAllowedToolsParam",
    ),
    "ChatCompletionNamedToolChoiceParam": Fields(
        taken="function type",
    ),
    "ChatCompletionNamedToolChoiceParam.function": Fields(
        taken="chat_completion_named_tool_choice_param.Function",
    ),
    "ChatCompletionFunctionToolParam": Fields(
        taken="function type",
    ),
    "ChatCompletionFunctionToolParam.function": Fields(
        taken="FunctionDefinition",
    ),
    "ChatCompletionContentPartTextParam": Fields(
        taken="text type",
        ignored="prompt_cache_breakpoint",
    ),
    "ChatCompletionContentPartRefusalParam": Fields(
        taken="refusal type",
    ),
    "ChatCompletionMessageFunctionToolCallParam": Fields(
        taken="id function type",
    ),
    "ChatCompletionMessageFunctionToolCallParam.function": Fields(
        taken="chat_completion_message_function_tool_call_param.Function",
    ),
    "JSONSchema": Fields(
        taken="name description schema strict",
    ),
    "ChatCompletionAllowedToolsParam": Fields(
        taken="mode tools",
    ),
    "chat_completion_named_tool_choice_param.Function": Fields(
        taken="name",
    ),
    "FunctionDefinition": Fields(
        taken="name description parameters strict",
    ),
    "chat_completion_message_function_tool_call_param.Function": Fields(
        taken="arguments name",
    ),
}

COMPLETIONS: dict[str, Fields] = {
    "CompletionCreateParamsStreaming": Fields(
        taken=(
            "model prompt echo frequency_penalty logit_bias logprobs max_tokens n "
            "presence_penalty seed stop stream_options temperature top_p stream"
        ),
        ignored="user",
        default="best_of",
        refused="suffix",
    ),
    "CompletionCreateParamsStreaming.stream_options": Fields(
        taken="ChatCompletionStreamOptionsParam",
    ),
    "ChatCompletionStreamOptionsParam": Fields(
        taken="include_usage",
        ignored="include_obfuscation",
    ),
}

RESPONSES: dict[str, Fields] = {
    "ResponseCreateParamsStreaming": Fields(
        taken=(
            "include input instructions max_output_tokens metadata model parallel_tool_calls "
            "prompt_cache_key reasoning safety_identifier service_tier temperature text "
            "tool_choice tools top_logprobs top_p user stream"
        ),
        ignored=(
            "context_management max_tool_calls prompt_cache_options prompt_cache_retention "
            "stream_options"
        ),
        default="store truncation",
        refused=(
            "access_programs background conversation image moderation previous_response_id prompt"
        ),
    ),
    "ResponseCreateParamsStreaming.input": Fields(
        taken=(
            "EasyInputMessageParam Message ResponseOutputMessageParam "
            "ResponseFunctionToolCallParam FunctionCallOutput ResponseReasoningItemParam "
            "ResponseCustomToolCallOutputParam ResponseCustomToolCallParam"
        ),
        refused=(
            "ResponseFileSearchToolCallParam ResponseComputerToolCallParam ComputerCallOutput "
            "ResponseFunctionWebSearchParam ToolSearchCall "
            "ResponseToolSearchOutputItemParamParam AdditionalTools "
            "ResponseConfigurationUpdateItemParamParam ResponseCompactionItemParamParam "
            "ImageGenerationCall ResponseCodeInterpreterToolCallParam LocalShellCall "
            "LocalShellCallOutput ShellCall ShellCallOutput ApplyPatchCall "
            "ApplyPatchCallOutput McpListTools McpApprovalRequest McpApprovalResponse McpCall "
            "CompactionTrigger ItemReference Program ProgramOutput"
        ),
    ),
    "ResponseCreateParamsStreaming.reasoning": Fields(
        taken="Reasoning",
    ),
    "ResponseCreateParamsStreaming.text": Fields(
        taken="ResponseTextConfigParam",
    ),
    "ResponseCreateParamsStreaming.tool_choice": Fields(
        taken="ToolChoiceAllowedParam ToolChoiceFunctionParam ToolChoiceCustomParam",
        refused=(
            "ToolChoiceTypesParam ToolChoiceMcpParam "
            "ToolChoiceSpecificProgrammaticToolCallingParam ToolChoiceApplyPatchParam "
            "ToolChoiceShellParam"
        ),
    ),
    "ResponseCreateParamsStreaming.tools": Fields(
        taken="FunctionToolParam CustomToolParam NamespaceToolParam",
        omitted=(
            "FileSearchToolParam ComputerToolParam ComputerUsePreviewToolParam "
            "WebSearchToolParam Mcp CodeInterpreter ProgrammaticToolCalling ImageGeneration "
            "LocalShell FunctionShellToolParam ToolSearchToolParam WebSearchPreviewToolParam "
            "ApplyPatchToolParam"
        ),
    ),
    "EasyInputMessageParam": Fields(
        taken="content role type",
        ignored="phase",
    ),
    "EasyInputMessageParam.content": Fields(
        taken="ResponseInputTextParam",
        refused="ResponseInputImageParam ResponseInputFileParam",
    ),
    "Message": Fields(
        taken="content role type",
        ignored="status",
    ),
    "Message.content": Fields(
        taken="ResponseInputTextParam",
        refused="ResponseInputImageParam ResponseInputFileParam",
    ),
    "ResponseOutputMessageParam": Fields(
        taken="id content role status type",
        ignored="phase",
    ),
    "ResponseOutputMessageParam.content": Fields(
        taken="ResponseOutputTextParam ResponseOutputRefusalParam",
    ),
    "ResponseFunctionToolCallParam": Fields(
        taken="arguments call_id name type namespace",
        ignored="id caller status",
        default="async",
    ),
    "FunctionCallOutput": Fields(
        taken="output type call_id",
        ignored="id caller name namespace status",
    ),
    "FunctionCallOutput.output": Fields(
        taken="ResponseInputTextContentParam",
        refused="ResponseInputImageContentParam ResponseInputFileContentParam",
    ),
    "ResponseReasoningItemParam": Fields(
        taken="id summary type content",
        ignored="encrypted_content status",
    ),
    "ResponseReasoningItemParam.summary": Fields(
        taken="Summary",
    ),
    "ResponseReasoningItemParam.content": Fields(
        taken="Content",
    ),
    "ResponseCustomToolCallOutputParam": Fields(
        taken="call_id output type",
        ignored="id caller",
    ),
    "ResponseCustomToolCallOutputParam.output": Fields(
        taken="ResponseInputTextParam",
        refused="ResponseInputImageParam ResponseInputFileParam",
    ),
    "ResponseCustomToolCallParam": Fields(
        taken="call_id input name type namespace",
        ignored="id caller",
        default="async",
    ),
    "Reasoning": Fields(
        taken="effort",
        ignored="generate_summary summary",
        default="context mode",
    ),
    "ResponseTextConfigParam": Fields(
        taken="format",
        ignored="verbosity",
    ),
    "ResponseTextConfigParam.format": Fields(
        taken=(
            "ResponseFormatText ResponseFormatTextJSONSchemaConfigParam ResponseFormatJSONObject"
        ),
    ),
    "ToolChoiceAllowedParam": Fields(
        taken="mode tools type",
    ),
    "ToolChoiceFunctionParam": Fields(
        taken="name type",
    ),
    "ToolChoiceCustomParam": Fields(
        taken="name type",
    ),
    "FunctionToolParam": Fields(
        taken=(
            "async name parameters strict type allowed_callers defer_loading description "
            "output_schema"
        ),
    ),
    "CustomToolParam": Fields(
        taken="async name type allowed_callers defer_loading description format",
    ),
    "CustomToolParam.format": Fields(
        taken="Text Grammar",
    ),
    "NamespaceToolParam": Fields(
        taken="description name tools type",
    ),
    "NamespaceToolParam.tools": Fields(
        taken="ToolFunction CustomToolParam",
    ),
    "ResponseInputTextParam": Fields(
        taken="text type",
        ignored="prompt_cache_breakpoint",
    ),
    "ResponseOutputTextParam": Fields(
        taken="annotations text type",
        ignored="logprobs",
    ),
    "ResponseOutputTextParam.annotations": Fields(
        taken=(
            "AnnotationFileCitation AnnotationURLCitation AnnotationContainerFileCitation "
            "AnnotationFilePath"
        ),
    ),
    "ResponseOutputRefusalParam": Fields(
        taken="refusal type",
    ),
    "ResponseInputTextContentParam": Fields(
        taken="text type",
        ignored="prompt_cache_breakpoint",
    ),
    "Summary": Fields(
        taken="text type",
    ),
    "Content": Fields(
        taken="text type",
    ),
    "ResponseFormatText": Fields(
        taken="type",
    ),
    "ResponseFormatTextJSONSchemaConfigParam": Fields(
        taken="name schema type description strict",
    ),
    "ResponseFormatJSONObject": Fields(
        taken="type",
    ),
    "Text": Fields(
        taken="type",
    ),
    "Grammar": Fields(
        taken="definition syntax type",
    ),
    "ToolFunction": Fields(
        taken=(
            "async name type allowed_callers defer_loading description output_schema "
            "parameters strict"
        ),
    ),
    "AnnotationFileCitation": Fields(
        taken="file_id filename index type",
    ),
    "AnnotationURLCitation": Fields(
        taken="end_index start_index title type url",
    ),
    "AnnotationContainerFileCitation": Fields(
        taken="container_id end_index file_id filename start_index type",
    ),
    "AnnotationFilePath": Fields(
        taken="file_id index type",
    ),
}

EMBEDDINGS: dict[str, Fields] = {
    "EmbeddingCreateParams": Fields(
        taken="input model dimensions encoding_format",
        ignored="user",
    ),
}
